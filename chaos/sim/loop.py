"""An event loop whose `_go_to` is the only place where time moves.

INVARIANT  two runs of the same code with the same seed take the same steps in the same order.
PREVENTS   a failing seed that can't be replayed.
PROVED BY  tests/sim/test_determinism.py::test_the_same_seed_gives_the_same_trace_under_any_hash_seed

Every callback belongs to the incarnation of a node (or to nobody: the test that drives). Those of a dead one
are dropped unrun, those of a paused one wait: that is all that a crash and a pause are to the loop.
"""

import asyncio
import contextlib
import types
import warnings
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, Final, NoReturn, TypeVar

T = TypeVar("T")

# So many rounds without time moving are no work any more but a loop that never ends.
ROUNDS_AT_ONE_TIME_MAX: Final = 200_000
FRAMES_SHOWN: Final = 3
CLOSES_MAX: Final = 1000
CLOCK_RESOLUTION_S: Final = 1e-9


class NodeDown(BaseException):
    """Raised into code of a node that is no more, to unwind it. Nothing may catch it."""


class Incarnation:
    """One life of one node: from its start to its stop, kill or crash."""

    __slots__ = ("alive", "name", "number", "parked", "paused", "stopped", "waits_until_s")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.alive = True
        self.paused = False  # it does not run, for one of the two reasons below
        self.stopped = False  # somebody has stopped it
        self.waits_until_s = 0.0  # its disk keeps it waiting
        self.parked: list[events.Handle] = []

    def check(self) -> None:
        if not self.alive:
            raise NodeDown(f"{self.name} (incarnation {self.number}) is down")


# Whose code is running. Tasks, timers and callbacks inherit it.
INCARNATION: Final[ContextVar[Incarnation | None]] = ContextVar("incarnation", default=None)


def context_of(incarnation: Incarnation | None) -> Context:
    """The current context, but with code of `incarnation` in it."""
    context = copy_context()
    if context.get(INCARNATION) is not incarnation:
        context.run(INCARNATION.set, incarnation)
    return context


class Stuck(AssertionError):
    """The simulation can't go on; the message names every task and where it waits."""


class Deadlock(Stuck):
    """Every task waits and nothing is scheduled."""


class TimeIsUp(Stuck):
    """Virtual time ran past the limit: something that should end does not."""


class Livelock(Stuck):
    """Callbacks go on and on without time moving."""


def _run_handle(handle: events.Handle) -> None:
    context: Context = handle._context  # type: ignore[attr-defined]
    incarnation = context.get(INCARNATION)
    if incarnation is not None:
        if not incarnation.alive:
            return
        if incarnation.paused:
            incarnation.parked.append(handle)
            return
    try:
        context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
    except (SystemExit, KeyboardInterrupt):
        raise
    except NodeDown:
        pass
    except BaseException as error:  # noqa: BLE001 - the loop is what supervises callbacks
        handle._loop.call_exception_handler(  # type: ignore[attr-defined]
            {"message": "a callback raised", "exception": error, "handle": handle}
        )


class SimHandle(events.Handle):
    """As asyncio's, without what is for debugging: a quarter of the loop's own time."""

    __slots__ = ()
    _repr = _source_traceback = None

    def __init__(
        self, callback: Callable[..., Any], args: Any, loop: "SimLoop", context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False

    def _run(self) -> None:
        _run_handle(self)


class SimTimerHandle(events.TimerHandle):
    __slots__ = ()
    _repr = _source_traceback = None
    _scheduled = False  # asyncio counts timers that were cancelled; here they are just not run

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: Any,
        loop: "SimLoop",
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]

    def _run(self) -> None:
        _run_handle(self)


class SimTask(asyncio.Task[T]):
    """A task whose hash is its number: asyncio keeps tasks in sets, and goes through them."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[T]):
    __slots__ = ("number",)  # and no dict, which takes as long to make as all the rest
    number: int

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time in seconds, starting at 0. Nothing outside the process can be waited for."""

    def __init__(self, *, time_limit_s: float = 86_400.0) -> None:
        super().__init__()
        self._now = 0.0
        self._ready: deque[events.Handle]
        # When, the order in which they were set, and what: timers of one time run in that order.
        self._timers: list[tuple[float, int, SimTimerHandle]] = []
        self._numbers = 0
        self._rounds = 0
        self._alive: dict[SimTask[Any], Context] = {}
        self._prune_at = 1000
        self._generators: dict[int, Incarnation | None] = {}
        self.time_limit_s = time_limit_s

    # Time.

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """`BaseEventLoop`'s, without what looks at the world. With nothing ready, time goes to the next timer's."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Deadlock(self.report("every task waits, nothing is scheduled"))
            self._go_to(timers[0][0])
        self._rounds += 1
        if self._rounds > ROUNDS_AT_ONE_TIME_MAX:
            raise Livelock(self.report(f"no time passes after {self._now} s"))
        due = self._now + CLOCK_RESOLUTION_S
        while timers and timers[0][0] < due:
            handle = heappop(timers)[2]
            if not handle._cancelled:
                ready.append(handle)
        # Those that are ready now; what they make ready has its turn in the next round.
        take = ready.popleft
        for _ in range(len(ready)):
            ready_one = take()
            if not ready_one._cancelled:
                _run_handle(ready_one)

    def _go_to(self, when: float) -> None:
        if when > self.time_limit_s:
            raise TimeIsUp(self.report(f"virtual time went past {self.time_limit_s} s"))
        if when > self._now:
            self._now = when
            self._rounds = 0

    def close(self) -> None:
        self._timers.clear()
        super().close()

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no other thread that could be waiting to be heard."""

    # Callbacks.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> events.Handle:
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _call_soon(
        self, callback: Callable[..., Any], args: Any, context: Context | None
    ) -> events.Handle:
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        handle = SimTimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heappush(self._timers, (when, self._numbers, handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        handle = SimTimerHandle(self._now + delay, callback, args, self, context)
        self._numbers += 1
        heappush(self._timers, (handle._when, self._numbers, handle))
        return handle

    def keep_waiting(self, incarnation: Incarnation, seconds: float) -> None:
        """Its code waits for a call that blocks: what runs now goes on to its next `await`, and then nothing does."""
        since = max(self._now, incarnation.waits_until_s)
        incarnation.waits_until_s = since + seconds
        incarnation.paused = True
        self.call_at(incarnation.waits_until_s, self.go_on, incarnation, context=Context())

    def go_on(self, incarnation: Incarnation) -> None:
        """Unless somebody has stopped it, or it still waits. What was parked runs in the order it came up."""
        if incarnation.stopped or incarnation.waits_until_s > self._now + CLOCK_RESOLUTION_S:
            return
        incarnation.paused = False
        parked, incarnation.parked = incarnation.parked, []
        self._ready.extend(handle for handle in parked if not handle.cancelled())

    # Tasks.

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        context = copy_context() if context is None else context
        incarnation = context.get(INCARNATION)
        if incarnation is not None and not incarnation.alive:
            coro.close()
            incarnation.check()
        self._numbers += 1
        title = f"task-{self._numbers}" if name is None else str(name)
        SimTask.number = self._numbers  # asyncio hashes the task while it is being made
        task = SimTask(coro, loop=self, name=title, context=context)
        task.number = self._numbers
        self._alive[task] = context
        if len(self._alive) > self._prune_at:
            self._alive = {each: ctx for each, ctx in self._alive.items() if not each.done()}
            self._prune_at = 2 * len(self._alive) + 1000
        return task

    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        self._numbers += 1
        future.number = self._numbers
        return future

    def tasks(self) -> list[tuple[SimTask[Any], Incarnation | None]]:
        """Tasks that have not ended, in the order they were made."""
        return [
            (task, context.get(INCARNATION))
            for task, context in self._alive.items()
            if not task.done()
        ]

    def bury(self, incarnation: Incarnation | None) -> None:
        """Take apart the tasks of a dead incarnation, so that they go now and not when memory is collected.

        Their `finally` blocks run, cut off from the world: every port of a dead node refuses.
        """
        current = asyncio.current_task(self) if self.is_running() else None
        for task, context in list(self._alive.items()):
            if task.done() or task is current or context.get(INCARNATION) is not incarnation:
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _take_apart(task.get_coro(), context)
            self._alive.pop(task, None)

    def report(self, why: str) -> str:
        lines = [f"{why} (at {self._now:.6f} s)"]
        for task, incarnation in self.tasks():
            whose = "the test" if incarnation is None else incarnation.name
            lines.append(f"  {whose}: {task.get_name()} waits in {_where(task)}")
        return "\n".join(lines)

    # Generators that nobody closed are closed by the loop, but not those of the dead.

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        # Not kept as asyncio does, in a set of its own: nobody asks for all of them.
        self._generators[id(agen)] = INCARNATION.get()

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        incarnation = self._generators.pop(id(agen), None)
        if incarnation is None or incarnation.alive:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]

    # What would leave the simulation.

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("no threads in a simulation: slow disk work goes through `Disk.run`")

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("no sockets in a simulation: the network is `Env.net`")


def _take_apart(coroutine: Any, context: Context) -> None:
    """Close a coroutine that may not like it: each `await` of its handlers is one more exit to take."""
    for _ in range(CLOSES_MAX):
        # RuntimeError: it awaited once more. NodeDown: it tried to reach the world.
        with contextlib.suppress(BaseException), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what it was to await never will be
            context.run(coroutine.close)
            return
        if coroutine.cr_frame is None:
            return
    raise AssertionError(f"{coroutine} catches everything, for ever")


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost frames of a waiting task: `log.py:92 committed <- produce.py:40 handle`."""
    frames: list[str] = []
    awaited: Any = task.get_coro()
    while isinstance(awaited, types.CoroutineType) and awaited.cr_frame is not None:
        code = awaited.cr_code
        file = code.co_filename.rsplit("/", 1)[-1]
        frames.append(f"{file}:{awaited.cr_frame.f_lineno} {code.co_name}")
        awaited = awaited.cr_await
    return " <- ".join(reversed(frames[-FRAMES_SHOWN:])) or repr(task)
