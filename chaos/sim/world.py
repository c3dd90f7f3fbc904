"""A whole cluster in one process, on one seed.

    with World(seed=7) as world:
        world.run(scenario(world))

INVARIANT  everything random comes from the seed, by a stream for each part, so that a new draw in one part
           does not change what the others do.
PREVENTS   a seed that stops reproducing because an unrelated line was added elsewhere.
PROVED BY  tests/sim/test_determinism.py::test_one_more_draw_on_one_disk_leaves_the_network_as_it_was
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.log import reason_of

from .deaths import has_made
from .disk import MachineDisk
from .habits import PLAIN, DiskHabits
from .loop import INCARNATION, Incarnation, SimLoop, context_of
from .network import Network
from .node import Machine, SimEnv
from .trace import Trace

T = TypeVar("T")

# Events of a log that can't be used any more, or not be looked after.
FAILED: Final = ("log_failed", "retention_failed", "compaction_failed")


class NodeDied(AssertionError):
    """A node ended itself (`Env.die`) and the test had not said that it may."""


class NodeLost(Trouble):
    """The node went down while somebody waited for something on it."""


class World:
    """The machines, what is between them, and time."""

    def __init__(
        self,
        seed: int | str,
        *,
        time_limit_s: float = 86_400.0,
        deaths_allowed: bool | Callable[[str, BaseException], bool] = False,
        trace_kept: int = 20_000,
    ) -> None:
        self.seed = seed
        self.loop = SimLoop(time_limit_s=time_limit_s)
        self.loop.set_exception_handler(self._on_loop_exception)
        self.trace = Trace(self.loop.time, trace_kept)
        self.rng = self.stream("world")
        self.net = Network(self.loop, self.stream("net"), self.trace)
        self.disk_habits: Callable[[str], DiskHabits] = lambda _name: PLAIN
        self.deaths_allowed = deaths_allowed
        self.deaths: list[tuple[str, BaseException]] = []
        self.blames_nodes = False  # for a log that fails though no disk of its machine ever did
        # Told of a machine whose node goes down, while all is as the node left it.
        self.on_down: list[Callable[[str], None]] = []
        # And of one that has been given an empty disk.
        self.on_emptied: list[Callable[[str], None]] = []
        self._failure: BaseException | None = None
        self._machines: dict[str, Machine] = {}
        self._waiting: dict[Incarnation, dict[asyncio.Future[Any], None]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            error.add_note(f"seed {self.seed!r}; the last events:\n{self.trace.tail(30)}")
        self.close()

    def stream(self, name: str) -> random.Random:
        """A source of chance of its own. (A string seeds through SHA-512: no hash seed is in it.)"""
        return random.Random(f"{self.seed}/{name}")

    # Running.

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as the test, which belongs to no node, until it ends."""
        task = self.loop.create_task(work, name="test", context=Context())
        try:
            result = self.loop.run_until_complete(task)
        except RuntimeError:
            if self._failure is None:
                raise
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return result

    async def on(self, env: SimEnv, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as code of that node and wait for it. NodeLost when the node goes down meanwhile."""
        if not env.incarnation.alive:
            work.close()
            raise NodeLost(f"{env.name} is down")
        answer: asyncio.Future[T] = self.loop.create_future()
        waiting = self._waiting.setdefault(env.incarnation, {})
        waiting[answer] = None
        task = self.loop.create_task(
            _answering(work, answer), name=f"on {env.name}", context=context_of(env.incarnation)
        )
        try:
            return await answer
        finally:
            waiting.pop(answer, None)
            task.cancel()
            if getcoroutinestate(work) == CORO_CREATED:
                work.close()  # its node died, or nobody waited any more, before it had begun; now it never will

    def start(self, env: SimEnv, program: Callable[[SimEnv], Coroutine[Any, Any, None]]) -> None:
        """Run a node's main program as one of its tasks: if it raises, the node dies."""
        env.tasks.spawn(program(env), name=f"main {env.name}")

    # Machines and their nodes.

    def node(self, name: str) -> SimEnv:
        """The running node on the machine of that name, which is made when there is none yet."""
        machine = self._machines.get(name)
        if machine is None:
            habits = self.disk_habits(name)
            rng, aside = self.stream(f"disk/{name}"), self.stream(f"disk aside/{name}")
            disk = MachineDisk(name, rng, aside, self.trace, habits)
            machine = self._machines[name] = Machine(name, disk, self.loop)
            self.net.turn_on(name)
        if machine.env is None or not machine.env.incarnation.alive:
            machine.env = self._new_env(machine)
        return machine.env

    def machine(self, name: str) -> Machine:
        return self._machines[name]

    def disk(self, name: str) -> MachineDisk:
        return self._machines[name].disk

    def is_up(self, name: str) -> bool:
        machine = self._machines.get(name)
        return machine is not None and machine.env is not None and machine.env.incarnation.alive

    def _new_env(self, machine: Machine) -> SimEnv:
        machine.starts += 1
        incarnation = Incarnation(machine.name, machine.starts)
        rng = self.stream(f"node/{machine.name}/{machine.starts}")
        self.trace.event(machine.name, "world.start", number=machine.starts, boot=machine.boots)
        env = SimEnv(machine, incarnation, self.loop, self.net, self.trace, rng, self._died)
        env.log.on_event = partial(self._on_event, machine)
        return env

    def kill(self, name: str) -> None:
        """`kill -9`: the process is gone, the machine stays, and with it all that was written."""
        self._down(name, silent=False, machine_stays=True)
        self._machines[name].disk.files.close_all()

    def crash(
        self,
        name: str,
        *,
        lose_unsynced: bool = True,
        torn: bool = True,
        silent: bool = False,
    ) -> None:
        """The power goes. `silent`: peers are not told by a reset, they have to notice."""
        machine = self._machines[name]
        self._down(name, silent=silent, machine_stays=False)
        self.net.turn_off(name)
        if lose_unsynced:
            machine.disk.files.crash(machine.disk.rng, torn=torn)
        else:
            machine.disk.files.close_all()
        machine.boots += 1
        self.trace.event(
            name, "world.crash", lost=lose_unsynced, torn=torn, left=machine.disk.fingerprint()
        )

    def restart(self, name: str) -> SimEnv:
        """A new process on the machine, which is turned on when it was off."""
        if self.is_up(name):
            self.kill(name)
        self.net.turn_on(name)
        return self.node(name)

    def pause(self, name: str) -> None:
        """SIGSTOP: the node does nothing; its kernel goes on receiving."""
        self.trace.event(name, "world.pause")
        incarnation = self._running(name)
        incarnation.stopped = incarnation.paused = True

    def suspend(self, name: str) -> None:
        """The whole machine stands still: its steady clock too, and its kernel hears nothing. `resume` wakes it."""
        self.pause(name)
        self._machines[name].steady.stop()
        self.net.turn_off(name)

    def has_slept(self, name: str, within_s: float) -> bool:
        """Whether its steady clock stood still, a while ago or now."""
        return self.loop.time() - self._machines[name].steady.stood_still_until < within_s

    def resume(self, name: str) -> None:
        self.trace.event(name, "world.resume")
        incarnation = self._running(name)
        if self._machines[name].steady.go_on():
            self.net.turn_on(name)
        incarnation.stopped = False
        self.loop.go_on(incarnation)

    def is_paused(self, name: str) -> bool:
        return self.is_up(name) and self._running(name).paused

    def _running(self, name: str) -> Incarnation:
        env = self._machines[name].env
        assert env is not None and env.incarnation.alive, f"{name} is down"
        return env.incarnation

    def crash_at_disk_op(
        self,
        name: str,
        operations: int,
        *,
        kill: bool = False,
        lose_unsynced: bool = True,
        torn: bool = True,
    ) -> None:
        """Crash (or kill) the node right after its `operations`-th disk operation from now (1 = the next)."""

        def crash() -> None:
            if kill:
                self.kill(name)
            else:
                self.crash(name, lose_unsynced=lose_unsynced, torn=torn)

        self.at_disk_op(name, operations, crash)

    def at_disk_op(self, name: str, operations: int, strike: Callable[[], None]) -> None:
        """Call `strike` inside that operation, before the node's code goes on."""
        disk = self.disk(name)
        last = disk.operations + operations

        def maybe_strike(count: int) -> None:
            if count >= last:
                disk.on_operation = None
                strike()

        disk.on_operation = maybe_strike

    def beside(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task of the test, until somebody cancels it: whatever it raises ends the run."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self.ended)
        return task

    def ended(self, task: "asyncio.Task[None]") -> None:
        """Of a task of the test that nobody waits for."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def wait_down(self, name: str) -> None:
        """Until the node that now runs on this machine does no more."""
        machine = self._machines[name]
        if self.is_up(name):
            waiter: asyncio.Future[None] = self.loop.create_future()
            machine.on_down.append(waiter)
            await waiter

    def heal(self) -> None:
        """No faults any more, on any disk or link; who is down stays down, who is paused goes on."""
        self.net.heal_all()
        for machine in self._machines.values():
            machine.disk.faults.heal()
            machine.disk.on_operation = None
            if self.is_up(machine.name) and self._running(machine.name).paused:
                self.resume(machine.name)

    def _down(self, name: str, *, silent: bool, machine_stays: bool) -> None:
        machine = self._machines[name]
        env = machine.env
        if env is None or not env.incarnation.alive:
            return
        self.trace.event(name, "world.down", machine_stays=machine_stays)
        for look in self.on_down:
            look(name)
        incarnation = env.incarnation
        incarnation.alive = False
        incarnation.parked.clear()
        if machine.steady.go_on():
            self.net.turn_on(name)
        for connection in list(self.net.connections.values()):
            if connection.incarnation is incarnation:
                connection.orphan(silent=silent, machine_stays=machine_stays)
        for key in [key for key in self.net.listeners if key[0] == name]:
            del self.net.listeners[key]
        self.loop.bury(incarnation)
        # The task that runs right now unwinds first, and may get caught in a handler that awaits.
        self.loop.call_soon(self.loop.bury, incarnation, context=Context())
        for answer in list(self._waiting.pop(incarnation, {})):
            if not answer.done():
                answer.set_exception(NodeLost(f"{name} went down"))
        waiters, machine.on_down = machine.on_down, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # What goes wrong.

    def _died(self, name: str, reason: BaseException) -> None:
        self.trace.event(name, "world.died", reason=repr(reason))
        self.deaths.append((name, reason))
        self.kill(name)
        if not self._may_die(name, reason):
            self.fail(NodeDied(f"{name} died: {reason_of(reason)}"), reason)

    def _may_die(self, name: str, reason: BaseException) -> bool:
        allowed = self.deaths_allowed
        return allowed(name, reason) if callable(allowed) else allowed

    def _on_event(self, machine: Machine, event: str, fields: dict[str, object]) -> None:
        """A node lives on with a fault that it met in a round of one log; a run does not."""
        if event == "round_given_up":
            fault = AssertionError(
                f"{fields['round']} of {fields['partition']}: {fields['traceback']}"
            )
            if not self._may_die(machine.name, fault):
                self.fail(fault)
        elif event in FAILED and self.blames_nodes and not has_made(machine.disk, fields):
            what = f"{machine.name}: {event} of {fields['partition']}: {fields['cause']}"
            self.fail(AssertionError(f"{what}; and its disk has never failed"))

    def fail(self, failure: BaseException, cause: BaseException | None = None) -> None:
        """End the run with this failure, whoever's code is running."""
        if self._failure is None:
            failure.__cause__ = cause
            self._failure = failure
            self.loop.stop()

    def _on_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback that raised. (Futures whose error nobody asked for are found at any time: ignored.)"""
        error, handle = context.get("exception"), context.get("handle")
        if handle is None or not isinstance(error, BaseException):
            return
        incarnation = handle._context.get(INCARNATION)
        if incarnation is None:
            self.fail(error)
        else:
            self._died(incarnation.name, error)

    def close(self) -> None:
        if self.loop.is_closed():
            return
        self.trace.end()
        for name in self._machines:
            if self.is_up(name):
                self._down(name, silent=True, machine_stays=False)
        for _, incarnation in self.loop.tasks():
            self.loop.bury(incarnation)
        self.loop.close()


async def _answering(work: Coroutine[Any, Any, T], answer: "asyncio.Future[T]") -> None:
    try:
        result = await work
    except asyncio.CancelledError:
        answer.cancel()
    except Exception as error:  # noqa: BLE001 - it is handed to whoever waits
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)
