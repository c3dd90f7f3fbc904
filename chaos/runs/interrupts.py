"""Ctrl-C and SIGTERM: the first asks a run to come to its end and say what it knows, the second does not wait for that."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """`asked` is empty, or the name of the signal."""

    def __init__(self) -> None:
        self.asked = ""
        self._before = {number: signal.getsignal(number) for number in SIGNALS}

    def _came(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
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
