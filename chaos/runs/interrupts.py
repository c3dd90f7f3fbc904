"""Ctrl-C and SIGTERM, which are the same: a run is asked to come to its end and say what it knows; a campaign, or a loop, is cut
off where it is, and says what it has seen by then.

INVARIANT  whoever was started with SIGINT ignored, as a shell starts what runs in its background, hears it all the same.
PREVENTS   a night whose clock ends nothing; an hour of seeds that leaves no line because it was SIGTERM that came.
PROVED BY  tests/chaos/test_campaign_runner.py::test_a_campaign_that_is_ended_counts_what_it_has_run
"""

import signal
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, ClassVar, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
EXIT_INTERRUPTED: Final = 130  # of a campaign that one of them has ended
AGAIN: Final = signal.SIGVTALRM  # what was raised and lost is raised again
AGAIN_S: Final = 0.2  # of this process's own work
Handler = Callable[[int, FrameType | None], Any] | int | None


class Interrupts:
    """The first signal asks, the second does not wait for that. `asked` is empty, or the name of the signal."""

    def __init__(self) -> None:
        self.asked = ""
        self._before = {number: signal.getsignal(number) for number in SIGNALS}

    def _came(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self._take(number)

    def _take(self, number: int) -> None:
        self.asked = signal.Signals(number).name

    def __bool__(self) -> bool:
        return bool(self.asked)

    def __enter__(self) -> Self:
        for number in SIGNALS:
            signal.signal(number, self._came)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class HeardBehind:
    """Signals that come in the block are heard at its end, by whoever would have heard them.

    INVARIANT  no handler raises in the middle of a process pool's own code.
    PREVENTS   its locks left held: the thread that ends the pool then waits for them for ever.
    PROVED BY  tests/chaos/test_campaign_runner.py::test_a_signal_between_any_two_lines_of_the_pool_ends_it
    """

    def __init__(self) -> None:
        self._heard: list[int] = []
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> None:
        for each in (*SIGNALS, AGAIN):
            self._before[each] = signal.signal(each, self._hear)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._heard.append(number)

    def __exit__(self, *_raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for number in self._heard:
            signal.raise_signal(number)


class Beside:
    """A call on a thread of its own, which nobody has to wait for: it ends with this process at the latest.

    (An executor waits for its threads, whatever is raised beside them, and when the process ends.)
    """

    def __init__(self, call: Callable[[], object], name: str) -> None:
        self._failure: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as unforeseen:  # noqa: BLE001 - `end` raises it where somebody sees it
            self._failure = unforeseen

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        """Wait until it is over; what it raised is raised here."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class CutsOff(Interrupts):
    """The first signal raises KeyboardInterrupt, unless all is `over`: what is written down then is not cut off by any."""

    def __init__(self) -> None:
        super().__init__()
        self._is_over = False

    def _came(self, number: int, _frame: FrameType | None) -> None:
        if self.asked or self._is_over:
            return
        self._take(number)
        raise KeyboardInterrupt

    def over(self) -> None:
        self._is_over = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Who was cut off is about to end: a signal that comes again does not change its exit code. Not even while Python ends: it
        takes back handlers then, and leaves what is ignored."""
        if not self.asked:
            super().__exit__(kind, error, trace)
            return
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)


class HeardAtLast(CutsOff):
    """As `CutsOff`, though what a handler raises may be lost: until all is `over` it is raised anew. For work that leaves nothing
    behind wherever it is cut off, which is not that of nodes.

    INVARIANT  a KeyboardInterrupt that the signal's handler raised leaves the block, or the item of work that it came in
               (`raise_what_was_lost`).
    PREVENTS   a campaign that nobody can end any more: of a signal that came while a task was collected, or in a node's own step,
               nothing is heard (Python says "Exception ignored in"); and a seed called failed by what was lost there.
    PROVED BY  tests/chaos/test_campaign_runner.py::test_a_signal_that_was_lost_in_a_destructor_ends_work_in_this_process,
               tests/chaos/test_campaign_runner.py::test_what_a_lost_signal_makes_of_an_item_is_nobodys_result
    """

    _newest: ClassVar["HeardAtLast | None"] = None

    def __init__(self) -> None:
        super().__init__()
        self._unraisable = sys.unraisablehook
        self._outer = HeardAtLast._newest

    def __enter__(self) -> Self:
        self._before[AGAIN] = signal.signal(AGAIN, self._again)
        sys.unraisablehook = self._lost
        HeardAtLast._newest = self
        return super().__enter__()

    def _take(self, number: int) -> None:
        super()._take(number)
        # What it comes between, the making of a coroutine and its first step, is no fault of anybody's.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        signal.setitimer(signal.ITIMER_VIRTUAL, AGAIN_S, AGAIN_S)

    def _again(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_over:
            raise KeyboardInterrupt

    def _lost(self, what: "sys.UnraisableHookArgs") -> None:
        if what.exc_type is not KeyboardInterrupt:
            self._unraisable(what)

    def over(self) -> None:
        super().over()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over()
        sys.unraisablehook = self._unraisable
        HeardAtLast._newest = self._outer
        super().__exit__(kind, error, trace)

    @classmethod
    def raise_what_was_lost(cls) -> None:
        """Behind an item of work: if somebody has ended all of it meanwhile, nobody looks at what became of that."""
        newest = cls._newest
        if newest is not None and newest.asked and not newest._is_over:
            raise KeyboardInterrupt


raise_what_was_lost: Final = HeardAtLast.raise_what_was_lost
