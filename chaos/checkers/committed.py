"""How far a partition is committed, as its leaders and their clients see it.

INVARIANT  within a leader epoch neither high watermark nor last stable offset goes back; no epoch ever commits
           past the place where a later epoch began; nothing is committed by fewer than min.insync.replicas.
PREVENTS   an acknowledged batch that the next leader does not have: its epoch began below it.
PROVED BY  tests/chaos/test_cluster_checkers.py::test_what_an_epoch_committed_past_the_start_of_the_next_is_lost

A new leader may show less than the one before it did, until it knows better: that is Kafka's way too (KIP-207).
"""

from operator import itemgetter

from .history import Anomaly
from .observations import Committed, Leads, Told

_EPOCH = itemgetter(0)


class Commits:
    def __init__(self) -> None:
        self._by_epoch: dict[str, dict[int, Committed]] = {}
        self._starts: dict[str, dict[int, Leads]] = {}
        self._told: dict[tuple[str, str, int], int] = {}

    def of(self, key: str) -> int:
        """What is committed, by any leader."""
        epochs = self._by_epoch.get(key, {})
        return max((seen.high_watermark for seen in epochs.values()), default=0)

    def see(self, seen: Committed | Leads | Told) -> list[Anomaly]:
        if isinstance(seen, Leads):
            return self._see_start(seen)
        if isinstance(seen, Told):
            return self._see_told(seen)
        epochs = self._by_epoch.setdefault(seen.key, {})
        before = epochs.get(seen.leader_epoch)
        if before == seen:
            return []
        known = self.of(seen.key) if before is None else before.high_watermark
        epochs[seen.leader_epoch] = seen
        found = self._against_later_epochs(seen)
        if seen.high_watermark > known and len(seen.isr) < seen.min_isr:
            what = f"leader {seen.node} committed to {seen.high_watermark} with ISR {seen.isr}"
            found.append(Anomaly("under-min-isr", seen.key, f"{what}, needed are {seen.min_isr}"))
        if before is None:
            return found
        for name in ("high_watermark", "last_stable_offset"):
            was, now = getattr(before, name), getattr(seen, name)
            if now < was:
                words = name.replace("_", " ")
                what = f"the {words} of leader {seen.node} went from {was} to {now}"
                found.append(
                    Anomaly("commit-back", seen.key, f"{what} in epoch {seen.leader_epoch}")
                )
        return found

    def _see_start(self, start: Leads) -> list[Anomaly]:
        self._starts.setdefault(start.key, {})[start.leader_epoch] = start
        earlier = self._by_epoch.get(start.key, {})
        lost = [
            (epoch, seen)
            for epoch, seen in earlier.items()
            if epoch < start.leader_epoch and seen.high_watermark > start.start_offset
        ]
        return [_lost(seen, start) for _, seen in sorted(lost, key=_EPOCH)]

    def _against_later_epochs(self, seen: Committed) -> list[Anomaly]:
        later = self._starts.get(seen.key, {})
        lost = [
            (epoch, start)
            for epoch, start in later.items()
            if epoch > seen.leader_epoch and seen.high_watermark > start.start_offset
        ]
        return [_lost(seen, start) for _, start in sorted(lost, key=_EPOCH)]

    def _see_told(self, seen: Told) -> list[Anomaly]:
        place = (seen.client, seen.key, seen.leader_epoch)
        before = self._told.get(place, -1)
        self._told[place] = seen.high_watermark
        if seen.high_watermark >= before:
            return []
        what = f"{seen.client} was told {before}, then {seen.high_watermark}"
        return [Anomaly("commit-back", seen.key, f"{what}, in epoch {seen.leader_epoch}")]


def _lost(seen: Committed, start: Leads) -> Anomaly:
    what = (
        f"node {seen.node} committed to {seen.high_watermark} in epoch {seen.leader_epoch}, "
        f"and epoch {start.leader_epoch} of node {start.node} began at {start.start_offset}"
    )
    return Anomaly("commit-lost", start.key, what)
