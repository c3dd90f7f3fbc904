"""How late the loop is: looked at four times a second while the admin door is open."""

import asyncio
from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.metrics import Histogram
from fencepost.cluster.base.ports import Clock

LOOK_S: Final = 0.25


class LoopLag:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._look_too: Callable[[], None] = lambda: None
        self._due = 0.0
        self.lag_s = Histogram()

    def start(self, look_too: Callable[[], None]) -> None:
        """`look_too` is called as often."""
        self._look_too = look_too
        self._look_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._due = self._clock.steady() + LOOK_S
        self._timer = self._clock.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self.lag_s.observe(max(0.0, self._clock.steady() - self._due))
        self._look_too()
        self._look_later()
