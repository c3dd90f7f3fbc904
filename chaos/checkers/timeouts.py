"""A transaction has its time: nobody ends it before that but who has its transactional id.

INVARIANT  a producer is not fenced in an open transaction before `transaction.timeout.ms` is over since its first request, unless
           somebody else, or a request of its own that had no answer, may have begun a new life of its id.
PREVENTS   a coordinator that ends transactions when it pleases, a new one that counts their time anew: whoever is fenced is told so
           by what the log says by then, and no other rule asks why.
PROVED BY  tests/chaos/test_timeouts.py::test_who_is_fenced_before_its_time_is_up_is_seen
"""

from typing import Final

from .history import Anomaly

SHARE: Final = 0.9  # of its time: no clock is wrong by a tenth


class Timeouts:
    """Of all producers. For runs in which nobody sets a wall clock: who takes over goes by that."""

    def __init__(self) -> None:
        self._owner: dict[str, int] = {}  # the one producer that has ever begun a life of this id
        self._doubtful: set[str] = set()

    def begins(self, transactional_id: str, producer: int) -> None:
        """InitProducerId is about to be sent."""
        if self._owner.setdefault(transactional_id, producer) != producer:
            self._doubtful.add(transactional_id)

    def may_come_late(self, transactional_id: str) -> None:
        """One had no answer, and may be carried out at any time."""
        self._doubtful.add(transactional_id)

    def fenced(self, transactional_id: str, age_s: float, timeout_s: float) -> list[Anomaly]:
        if transactional_id in self._doubtful or age_s >= timeout_s * SHARE:
            return []
        what = (
            f"it was fenced {age_s:.2f} s after it began its transaction, which has {timeout_s} s"
        )
        return [Anomaly("ended-early", transactional_id, what)]
