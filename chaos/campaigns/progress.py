"""How far a campaign is: a line on a terminal that is drawn over, nothing elsewhere but what is said."""

import sys
import time
from typing import Final

from .campaign import Outcome

EVERY_S: Final = 0.2


class Progress:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._failed = 0
        self._virtual_s = 0.0
        self._began = time.monotonic()
        self._drawn = 0.0
        self._is_terminal = sys.stderr.isatty()

    def at(self, outcome: Outcome) -> None:
        self._done += 1
        self._failed += bool(outcome.failure)
        self._virtual_s += outcome.virtual_s
        now = time.monotonic()
        if not self._is_terminal or now - self._drawn < EVERY_S:
            return
        self._drawn = now
        took = now - self._began
        left = took / self._done * (self._total - self._done)
        sys.stderr.write(
            f"\r\x1b[K{self._done:,} of {self._total:,} seeds, {self._failed} failed,"
            f" {self._virtual_s / took:.0f} virtual seconds a second, {left:.0f} s left"
        )
        sys.stderr.flush()

    def say(self, text: str) -> None:
        self.end()
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
