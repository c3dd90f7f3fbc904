"""Who wrote what a leader has deleted, for a replica that begins with what is left of the log.

INVARIANT  a replica that has copied a log knows of each producer what its leader knew when that was copied: by the batches, and
           of those that were deleted by this. It is on the disk before the first batch behind it is written.
PREVENTS   a retry of a batch that was deleted since, written a second time by a leader that never had the first.
PROVED BY  tests/replication/test_producers_handed_on.py::test_a_retry_of_what_was_deleted_is_known_to_a_replica_that_never_had_it

Retention by time, or by a small size, and DeleteRecords take batches whose acknowledgement may still be on its way. Who had them
has snapshots of the producers' state. Kafka's new replicas know nobody before the first batch that they copy.
"""

from typing import TYPE_CHECKING, Final

from .checkpoint import Kind
from .producer_snapshot import (
    BATCH,
    BATCH_SIZE,
    ENTRY,
    ENTRY_SIZE,
    WINDOW,
    Snapshot,
    SnapshotDamaged,
    read_snapshot,
    seen_at,
    unpack_entry,
    write_snapshot,
)
from .snapshots import NOBODY_EXPIRES, Copied, write_durably
from .sync import sync_now

if TYPE_CHECKING:
    from .log import Log

# Those that wrote last: 16 MB at most. And of those whose transaction is open twice as many.
HANDED_MAX: Final = 50_000
NONE: Final = -1


def below(copied: Copied, offset: int) -> bytes:
    """A snapshot of what lies below `offset`, and no batch behind it will tell; empty when that is nothing.

    Of a batch behind it nothing may be known there: it may never be committed. That a coordinator's epoch has come so far
    may be: it has, whatever becomes of the marker that told it.
    """
    _, entries, _ = copied
    kept: dict[int, bytes] = {}
    for producer_id, entry in reversed(entries.items()):
        cut = _cut(entry, offset)
        if cut is not None:
            is_open = ENTRY.unpack_from(cut)[4] != NONE
            if len(kept) < HANDED_MAX * (1 + is_open):
                kept[producer_id] = cut
    return write_snapshot(offset, dict(reversed(kept.items())), []) if kept else b""


def _cut(entry: bytes, offset: int) -> bytes | None:
    epoch, coordinator_epoch, timestamp, seen_ms, txn_first_offset = ENTRY.unpack_from(entry)
    batches = entry[ENTRY_SIZE:]
    size = sum(BATCH_SIZE for _, _, last, _ in BATCH.iter_unpack(batches) if last < offset)
    if batches and not size:  # those come
        if coordinator_epoch == NONE:
            return None
        epoch = NONE  # or its next batch would have to be its first
    first = txn_first_offset if txn_first_offset < offset else NONE
    return ENTRY.pack(epoch, coordinator_epoch, timestamp, seen_ms, first) + batches[:size]


def take(log: "Log", data: bytes) -> None:
    """Of a log that was begun anew, before anything is in it. Blocks for some syncs. SnapshotDamaged, OSError: nobody is known."""
    offset = log.log_end_offset
    if log.log_start_offset != offset or len(log.producers):
        return  # it was here before, and knows better
    told, now_ms = read_snapshot(data), log.shared.clock.now_ms()
    check(told, offset)
    # By the clock here, which may be another than the leader's; nobody is forgotten too early.
    data = write_snapshot(offset, {who: seen_at(entry, now_ms) for who, entry in told.entries}, [])
    write_durably(log, data)
    sync_now(log)
    # Else a start after a crash does not believe it: it stands above what is known to be synced.
    log.put(Kind.LOG_START, offset)
    log.put(Kind.RECOVERY_POINT, offset)
    if log.shared.offsets is not None:
        log.shared.offsets.flush_now()
    log.producers.restore(data, now_ms=NOBODY_EXPIRES)


def check(snapshot: Snapshot, offset: int) -> None:
    """It is well-formed; it comes from another node all the same."""
    if snapshot.end_offset != offset or snapshot.completed:
        raise SnapshotDamaged(
            f"it is of offset {snapshot.end_offset}, and the log begins at {offset}"
        )
    opened = set()
    for producer_id, entry in snapshot.entries:
        state = unpack_entry(producer_id, entry)
        first = state.txn_first_offset
        ends = [batch.last_offset for batch in state.batches]
        if (
            producer_id < 0
            or len(ends) > WINDOW
            or ends != sorted(ends)
            or not all(0 <= end < offset for end in ends)
            or not NONE <= first < offset
            or first in opened
        ):
            raise SnapshotDamaged(f"it says of producer {producer_id} what can't be: {state}")
        if first != NONE:
            opened.add(first)
