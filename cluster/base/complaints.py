"""Complaints about strangers: of each sort one is logged in a while, and the next one says how many were not."""

from collections.abc import Callable
from typing import Final

from .ports import Log

COMPLAINT_EVERY_S: Final = 10.0


class Complaints:
    """A log that a stranger can't fill."""

    def __init__(self, log: Log, steady: Callable[[], float]) -> None:
        self._log = log
        self._steady = steady
        self._last: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def warn(self, sort: str, event: str, **fields: object) -> None:
        now = self._steady()
        if now - self._last.get(sort, -COMPLAINT_EVERY_S) < COMPLAINT_EVERY_S:
            self._unsaid[sort] = self._unsaid.get(sort, 0) + 1
            return
        self._last[sort] = now
        unsaid = self._unsaid.pop(sort, 0)
        if unsaid:
            fields["more_like_it"] = unsaid
        self._log.warn(event, **fields)
