"""Ctrl-C and SIGTERM: the first asks a run to come to its end and say what it knows, the second does not wait for that."""

import signal
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
