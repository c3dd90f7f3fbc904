"""What is committed is the same bytes on every replica, and whoever may be elected has all of it.

INVARIANT  below what a replica takes for committed, its log equals every other's; a member of ISR or ELR holds
           every batch that any leader has committed. Where records are deleted, from where its log begins. What it takes
           for committed it has, without a gap.
PREVENTS   a consumer that reads other records after a failover than before; an election that loses some; a batch that all
           replicas lack, so that none differs from another.
PROVED BY  tests/chaos/test_cluster_checkers.py::test_a_replica_with_another_batch_below_its_watermark_has_diverged,
           tests/chaos/test_cluster_checkers.py::test_what_nobody_has_of_what_is_committed_is_seen_by_the_gap
"""

from bisect import bisect_left
from operator import attrgetter

from .history import Anomaly
from .observations import Batch, Held

_BASE = attrgetter("base_offset")


class Prefixes:
    """`agreed` is the log as it was first seen committed, a list of batches for each partition."""

    def __init__(self) -> None:
        self.agreed: dict[str, list[Batch]] = {}
        # How far a node's list was compared. Who adds to the same list has changed nothing of what it held.
        self._compared: dict[tuple[int, str], tuple[list[Batch], int]] = {}

    def see(self, seen: Held) -> list[Anomaly]:
        agreed = self.agreed.setdefault(seen.key, [])
        mine = seen.batches
        committed = agreed[-1].next_offset if agreed else 0
        until = committed if seen.counted else min(committed, seen.high_watermark)
        place = (seen.node, seen.key)
        before, start = self._compared.get(place, (None, 0))
        start = max(seen.log_start_offset, start if before is mine else 0)
        found = self._compare(seen, agreed, mine, start, until)
        if not found:
            self._compared[place] = (mine, max(start, until))
        if not found and seen.high_watermark > committed:
            start = bisect_left(mine, committed, key=_BASE)
            end = bisect_left(mine, seen.high_watermark, key=_BASE)
            news = mine[start:end]
            found = _gap(seen, max(committed, seen.log_start_offset), news)
            if news and agreed and news[0].base_offset > committed:
                agreed.clear()  # what lay between was deleted before anybody looked
            agreed += news
        return found

    def _compare(
        self, seen: Held, agreed: list[Batch], mine: list[Batch], start_offset: int, until: int
    ) -> list[Anomaly]:
        if agreed:
            start_offset = max(start_offset, agreed[0].base_offset)
        start = bisect_left(agreed, start_offset, key=_BASE)
        end = bisect_left(agreed, until, key=_BASE)
        offset = bisect_left(mine, start_offset, key=_BASE)
        wanted = agreed[start:end]
        got = mine[offset : offset + len(wanted)]
        if got == wanted:
            return []
        place = next(
            (at for at, (one, other) in enumerate(zip(got, wanted, strict=False)) if one != other),
            len(got),
        )
        if place == len(got):
            why = "in the ISR or ELR" if seen.counted else f"at {seen.high_watermark}"
            what = f"node {seen.node}, {why}, lacks {wanted[place]}, which is committed"
            return [Anomaly("commit-missing", seen.key, what)]
        what = f"node {seen.node} holds {got[place]} where {wanted[place]} is committed"
        return [Anomaly("diverged", seen.key, what)]


def _gap(seen: Held, start: int, news: list[Batch]) -> list[Anomaly]:
    """Between the batches from `start` to what this node takes for committed. Where its log begins the first may reach below."""
    reached = start
    for batch in news:
        if batch.base_offset > reached:
            break
        reached = batch.next_offset
    if reached >= seen.high_watermark:
        return []
    what = f"node {seen.node}, at {seen.high_watermark}, has nothing at {reached}"
    return [Anomaly("commit-missing", seen.key, what)]
