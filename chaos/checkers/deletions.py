"""What was deleted on request stays deleted, and nothing goes that nobody asked to delete.

INVARIANT  once a DeleteRecords was acknowledged, no leader of then or later shows a log that begins below the low watermark of its
           answer; none begins above what somebody has asked to delete.
PREVENTS   records that come back with another leader or after a crash, when their owner was told that they are gone; and a log
           start that runs ahead and takes what is owed to consumers.
PROVED BY  tests/chaos/test_deletions.py::test_a_deleted_record_that_is_back_with_a_later_leader_is_seen,
           tests/chaos/test_deletions.py::test_a_record_that_is_gone_and_nobody_asked_to_delete_is_seen

A leader that was deposed, and has not heard of it, may show what it has: its leader epoch says which it is.
"""

from collections.abc import Callable
from typing import Final

from .history import Anomaly
from .observations import Begins, Deletion

ALL_COMMITTED: Final = -1


class Deletions:
    """`committed` tells how far anybody has committed a key: nobody deletes more."""

    def __init__(self, committed: Callable[[str], int]) -> None:
        self._committed = committed
        self._asked: dict[str, list[int]] = {}  # what may be carried out, or was: offsets, or -1
        self._acknowledged: dict[str, list[tuple[int, int]]] = {}  # low watermark, leader epoch

    def acknowledged(self, key: str) -> int:
        """How many, so far."""
        return len(self._acknowledged.get(key, ()))

    def low(self, key: str) -> int:
        """Below this nobody may see anything any more."""
        return max((low for low, _ in self._acknowledged.get(key, ())), default=0)

    def most(self, key: str) -> int:
        """Nothing from here on may be gone."""
        asked = self._asked.get(key, ())
        explicit = max(asked, default=0)
        return max(explicit, self._committed(key)) if ALL_COMMITTED in asked else max(explicit, 0)

    def see(self, seen: Deletion | Begins) -> list[Anomaly]:
        return self._see_begin(seen) if isinstance(seen, Begins) else self._see_deletion(seen)

    def _see_deletion(self, seen: Deletion) -> list[Anomaly]:
        asked = self._asked.setdefault(seen.key, [])
        if seen.kind == "asked":
            asked.append(seen.before)
        if seen.kind == "fail":
            asked.remove(seen.before)
        if seen.kind != "ok":
            return []
        low, most, found = seen.low_watermark, self.most(seen.key), []
        if low < seen.before:
            what = (
                f"{seen.client} was told of {low}, and had asked to delete all before {seen.before}"
            )
            found.append(Anomaly("undeleted", seen.key, what))
        if low > most:
            what = f"{seen.client} was told that it begins at {low}; nobody deletes above {most}"
            found.append(Anomaly("over-deleted", seen.key, what))
        asked.remove(seen.before)
        asked.append(low)
        self._acknowledged.setdefault(seen.key, []).append((low, seen.leader_epoch))
        return found

    def _see_begin(self, seen: Begins) -> list[Anomaly]:
        known = self._acknowledged.get(seen.key, [])[: seen.since]
        low = max((low for low, epoch in known if epoch <= seen.leader_epoch), default=0)
        where = f"{seen.who}, epoch {seen.leader_epoch}"
        if seen.start < low:
            what = f"it begins at {seen.start} ({where}); all before {low} was deleted"
            return [Anomaly("undeleted", seen.key, what)]
        if seen.is_exact and seen.start > (most := self.most(seen.key)):
            what = f"it begins at {seen.start} ({where}); nobody asked to delete above {most}"
            return [Anomaly("over-deleted", seen.key, what)]
        return []
