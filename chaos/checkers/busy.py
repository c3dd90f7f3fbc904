"""How much of its time a machine that has more to do than one run was there for that run.

INVARIANT  time goes by slower by as much as the machine had more to do at that time than a run makes by itself, and never faster.
PREVENTS   lateness that is the machine's being called the brokers', and one busy minute excusing a whole hour.
PROVED BY  tests/chaos/test_queue_promised.py::test_a_busy_machine_is_given_as_much_more_time_as_it_has_more_to_do,
           tests/chaos/test_queue_promised.py::test_a_machine_that_was_busy_at_another_time_is_given_nothing
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

# Processes that run or wait, for each core. Three nodes, five clients and the harness on two cores make 1.5 to 2 by
# themselves (seen.jsonl of runs of 2026-11-22); the kernel's figure is an average over a minute.
OWN_LOAD: Final = 2.0


class Machine:
    """`loads` are lines of seen.jsonl in the order of time: when, and how many processes a core. None: it had time."""

    def __init__(self, loads: Iterable[tuple[float, float]]) -> None:
        self._at_s = [0.0]
        self._rates = [1.0]
        self._had_s = [0.0]  # of its own time, until then
        for at_s, load in loads:
            rate = min(1.0, OWN_LOAD / load) if load > 0 else 1.0
            if at_s <= self._at_s[-1]:
                self._rates[-1] = rate
            elif rate != self._rates[-1]:
                had_s = self._had(at_s)
                self._at_s.append(at_s)
                self._rates.append(rate)
                self._had_s.append(had_s)

    def _had(self, at_s: float) -> float:
        at = max(0, bisect_right(self._at_s, at_s) - 1)
        return self._had_s[at] + (at_s - self._at_s[at]) * self._rates[at]

    def between(self, from_s: float, to_s: float) -> float:
        """How many seconds of its own it had."""
        return self._had(to_s) - self._had(from_s)

    def later(self, from_s: float, seconds: float) -> float:
        """When it has had so many seconds more."""
        wanted_s = self._had(from_s) + seconds
        at = max(0, bisect_right(self._had_s, wanted_s) - 1)
        return self._at_s[at] + (wanted_s - self._had_s[at]) / self._rates[at]
