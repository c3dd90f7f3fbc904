"""What the transaction log decides is what the partitions' logs say, and nothing else is.

INVARIANT  a marker is written only when its outcome is decided in the transaction log, for that producer, epoch and partition;
           one that ends a transaction does so before the log says that it is complete, which it says of nothing that was not
           decided so; in the end every decision has its markers in all of its partitions. Nobody is refused for good but by
           what the transaction log says by then, and of an id that was in use it goes on to say something.
PREVENTS   a commit that a new coordinator does not know of, a late marker that ends the next transaction, and a partition
           whose stable offset stands for ever.
PROVED BY  tests/chaos/test_decisions.py::test_a_marker_that_nobody_decided_is_seen
"""

from collections import Counter
from collections.abc import Iterable

from .history import Anomaly
from .observations import Decided, Ended, Marked, Refused

PREPARED = {"PrepareCommit": True, "PrepareAbort": False, "PrepareEpochFence": False}
# Behind what the log may say that it is complete.
COMPLETES = {
    "CompleteCommit": {"PrepareCommit", "CompleteCommit"},
    "CompleteAbort": {"PrepareAbort", "PrepareEpochFence", "CompleteAbort"},
}
# What may follow a decision in the log, in Kafka's words; a decision may be logged again.
FOLLOWS = {
    "PrepareCommit": {"PrepareCommit", "CompleteCommit"},
    "PrepareAbort": {"PrepareAbort", "CompleteAbort"},
}
Transaction = tuple[int, int, bool]  # producer id, epoch of the marker, whether it commits


class Decisions:
    """Sees each in the order in which it was committed to the log of its partition."""

    def __init__(self) -> None:
        self.newest: dict[str, Decided] = {}
        self._of_producer: dict[int, Decided] = {}
        self._decided: set[Transaction] = set()
        # What was not marked since it was decided, and how often the next was decided before it was.
        self._due: set[tuple[Transaction, str]] = set()
        self._missed: Counter[tuple[Transaction, str]] = Counter()

    def see(self, seen: Decided | Marked) -> list[Anomaly]:
        return self._see_decided(seen) if isinstance(seen, Decided) else self._see_marked(seen)

    def forget(self, transactional_id: str) -> list[Anomaly]:
        """A tombstone: the id expired, after three weeks without use. No run takes so long."""
        newest = self.newest.pop(transactional_id, None)
        if newest is None:
            return []
        return [Anomaly("forgotten", transactional_id, f"the log had {newest}")]

    def refused(self, seen: Refused) -> list[Anomaly]:
        """Whoever answers may have been deposed, and not know it: that somebody fenced a producer has to be in the log, and
        a transaction that is open there can be committed. So can one that a partition has taken something for: whatever
        ends it for its producer takes another epoch. (An id that is gone from the log explains everything.)"""
        newest = self.newest.get(seen.transactional_id)
        if newest is None:
            return []
        mine = seen.producer_id, seen.producer_epoch
        theirs = newest.producer_id, newest.producer_epoch
        if seen.is_fenced:
            is_lie = mine[0] == theirs[0] and mine[1] >= theirs[1]
        else:
            is_lie = mine == theirs and (seen.has_written or newest.state == "Ongoing")
        if not is_lie:
            return []
        return [Anomaly("refused", seen.transactional_id, f"{seen}, but {newest}")]

    def ended(self, seen: Ended) -> list[Anomaly]:
        """What a producer was told has ended so is in the log by then, or the log is at a later epoch."""
        newest = self.newest.get(seen.transactional_id)
        if newest is None:
            return []
        mine = seen.producer_id, seen.producer_epoch
        outcomes = (
            ("PrepareCommit", "CompleteCommit")
            if seen.commit
            else ("PrepareAbort", "CompleteAbort")
        )
        if mine != (newest.producer_id, newest.producer_epoch) or newest.state in outcomes:
            return []
        return [Anomaly("unwritten-end", seen.transactional_id, f"{seen}, but {newest}")]

    def _see_decided(self, seen: Decided) -> list[Anomaly]:
        before = self.newest.get(seen.transactional_id)
        self.newest[seen.transactional_id] = self._of_producer[seen.producer_id] = seen
        found = []
        decided = COMPLETES.get(seen.state)  # its producer may have another number by then
        if before is not None and decided is not None and before.state not in decided:
            what = f"{seen} follows {before}, and nobody decided it"
            found.append(Anomaly("decision-changed", seen.transactional_id, what))
        elif before is not None and before.producer_id == seen.producer_id:
            allowed = FOLLOWS.get(before.state)
            if allowed is not None and seen.state not in allowed:
                what = f"{seen} follows {before}"
                found.append(Anomaly("decision-changed", seen.transactional_id, what))
            if seen.producer_epoch < before.producer_epoch:
                what = f"{seen} follows {before}"
                found.append(Anomaly("epoch-back", seen.transactional_id, what))
        if seen.state in PREPARED:
            decision = (seen.producer_id, seen.producer_epoch, PREPARED[seen.state])
            self._decided.add(decision)
            if before is None or before.state != seen.state:
                places = {(decision, each) for each in seen.partitions}
                self._missed.update(self._due & places)
                self._due |= places
        return found

    def _see_marked(self, seen: Marked) -> list[Anomaly]:
        decision = (seen.producer_id, seen.producer_epoch, seen.commit)
        self._due.discard((decision, seen.partition))
        word = "commit" if seen.commit else "abort"
        where = f"node {seen.node} wrote {word} of {seen.producer_id}/{seen.producer_epoch}"
        if decision not in self._decided:
            newest = self._of_producer.get(seen.producer_id)
            what = f"{where} at {seen.offset}; the log has {newest}"
            return [Anomaly("marker-undecided", seen.partition, what)]
        if not seen.ends_one:
            return []
        newest = self._of_producer[seen.producer_id]
        if PREPARED.get(newest.state) is not seen.commit:
            what = f"{where} at {seen.offset}, when the log was at {newest}"
            return [Anomaly("marker-late", seen.partition, what)]
        if seen.partition not in newest.partitions:
            what = f"{where} at {seen.offset}, where the log has only {newest.partitions}"
            return [Anomaly("marker-elsewhere", seen.partition, what)]
        return []

    def gone(self, partition: str) -> None:
        """Its topic was deleted: what was decided so far needs no marker there, and what is decided from now on does."""
        self._due = {each for each in self._due if each[1] != partition}

    def unfinished(self, *, gone: Iterable[str] = ()) -> list[Anomaly]:
        """In the end: decisions without a marker, and transactions that are not complete.

        `gone` are topics that were deleted: nobody can write there.
        """
        skipped = tuple(f"{topic}-" for topic in gone)
        found = []
        missing = self._missed + Counter(self._due)
        for (decision, partition), times in sorted(missing.items()):
            if not partition.startswith(skipped):
                what = f"{decision} was decided, and {times} times not marked"
                found.append(Anomaly("marker-missing", partition, what))
        for transactional_id, newest in sorted(self.newest.items()):
            if newest.state in PREPARED or newest.state == "Ongoing":
                found.append(Anomaly("unfinished", transactional_id, f"{newest} to the end"))
        return found
