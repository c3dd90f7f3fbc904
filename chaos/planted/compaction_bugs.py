"""Bugs of compaction, planted: what overtakes what, what of a transaction is kept, when a marker may go."""

from typing import Any

from fencepost.cluster.wire.batch import BatchHeader
from fencepost.cluster.wire.records import Record
from fencepost.replication.log import cleaner, compaction
from fencepost.replication.log.cleaner import Cleaner, Transactions
from fencepost.replication.partition_machine import PartitionMachine

from .bugs import Patch, bug

STRUCK = "kill kill-coordinator reset at-a-decision"


@bug(
    seen_by="key-back key-lost torn poll-skip tables-differ",
    campaign="transactions",
    faults=STRUCK,
    workloads="compacted",
)
def open_transactions_are_cleaned(patch: Patch) -> None:
    """Compaction works on what is not decided yet: what an open transaction has written overtakes what was committed."""
    right = compaction.dirt

    def dirt(log: Any, now_ms: int, _last_stable_offset: int) -> Any:
        return right(log, now_ms, log.log_end_offset)

    patch.put(compaction, "dirt", dirt)


@bug(
    seen_by="key-back key-lost torn poll-skip",
    campaign="transactions",
    faults=STRUCK,
    workloads="compacted",
)
def aborted_values_overtake(patch: Patch) -> None:
    """Compaction takes an aborted value for the newest of its key, and drops the one that was committed before it."""
    right = compaction._Round._map_piece

    class Blind(Transactions):
        __slots__ = ()

        def is_aborted(self, header: Any) -> bool:
            super().is_aborted(header)
            return False

    def map_piece(
        self: Any, file: Any, end: int, place: Any, limit: int, transactions: Any
    ) -> compaction.Place | None:
        transactions.__class__ = Blind
        return right(self, file, end, place, limit, transactions)

    patch.put(compaction._Round, "_map_piece", map_piece)


@bug(
    seen_by="G1a key-back key-lost",
    campaign="transactions",
    faults=STRUCK,
    workloads="compacted",
)
def aborted_values_are_kept(patch: Patch) -> None:
    """Compaction keeps records of aborted transactions as if they were committed, and forgets that they were not."""
    right = Transactions.is_aborted

    def is_aborted(self: Transactions, header: Any) -> bool:
        open_before = dict(self._open)
        right(self, header)
        self._open = {id_: (txn, id_ in open_before) for id_, (txn, _) in self._open.items()}
        return False

    patch.put(Transactions, "is_aborted", is_aborted)


@bug(
    seen_by="tables-differ key-back commit-back no-progress G1a",
    campaign="transactions",
    faults="kill isolate",
    workloads="compacted",
    seconds=16.0,
    seeds=40,
)
def tombstones_go_while_a_replica_is_away(patch: Patch) -> None:
    """Compaction drops old tombstones though a replica is away that has what they delete. (A bug that was here once.)"""
    patch.put(PartitionMachine, "is_everywhere", property(lambda _: True))


@bug(
    seen_by="key-back key-lost torn poll-skip no-progress G1a",
    campaign="transactions",
    faults=STRUCK,
    workloads="compacted",
    seeds=20,
)
def markers_are_cleaned_too_early(patch: Patch) -> None:
    """Compaction drops the marker of a transaction whose records are still there."""
    right = Cleaner.keep

    def keep(self: Cleaner, batch: Any, header: Any, *, is_last: bool) -> Any:
        left = right(self, batch, header, is_last=is_last)
        is_needed = is_last or header.next_offset == self.round_end
        return None if header.is_control and not is_needed else left

    patch.put(Cleaner, "keep", keep)


@bug(
    seen_by="tombstone-lost",
    campaign="transactions",
    faults=STRUCK,
    workloads="compacted",
    seeds=20,
)
def tombstones_go_at_once(patch: Patch) -> None:
    """Compaction drops a tombstone as soon as the value that it deletes is gone, whatever delete.retention.ms says."""
    right = Cleaner.__init__

    def init(self: Cleaner, *parts: Any, **named: Any) -> None:
        right(self, *parts, **{**named, "delete_retention_ms": 0})

    patch.put(Cleaner, "__init__", init)


@bug(seen_by="altered", campaign="transactions", faults=STRUCK, workloads="compacted dressed")
def cleaned_batches_have_one_time(patch: Patch) -> None:
    """What compaction keeps of a batch has the timestamp of the batch's first record."""
    right = cleaner.rebuilt

    def rebuilt(header: BatchHeader, kept: list[Record], horizon: int | None) -> bytearray:
        first = [each._replace(timestamp=header.base_timestamp) for each in kept]
        return right(header, first, horizon)

    patch.put(cleaner, "rebuilt", rebuilt)


@bug(seen_by="altered", campaign="transactions", faults=STRUCK, workloads="compacted dressed")
def cleaned_batches_lose_headers(patch: Patch) -> None:
    """What compaction keeps of a batch of which something goes has its keys and values, and no headers."""
    right = cleaner.rebuilt

    def rebuilt(header: BatchHeader, kept: list[Record], horizon: int | None) -> bytearray:
        bare = [each if each.value is None else each._replace(headers=()) for each in kept]
        return right(header, bare, horizon)

    patch.put(cleaner, "rebuilt", rebuilt)


@bug(seen_by="altered", campaign="transactions", faults=STRUCK, workloads="compacted dressed")
def delete_horizons_shift_times(patch: Patch) -> None:
    """A batch that is given a delete horizon, which stands where its base timestamp was, keeps the distances to that."""
    right = cleaner.rebuilt

    def rebuilt(header: BatchHeader, kept: list[Record], horizon: int | None) -> bytearray:
        by_ms = 0 if horizon is None else horizon - header.base_timestamp
        return right(
            header, [each._replace(timestamp=each.timestamp + by_ms) for each in kept], horizon
        )

    patch.put(cleaner, "rebuilt", rebuilt)
