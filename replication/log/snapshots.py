"""Files of producer state beside a log, so that a start replays the end of the log and not all of it.

INVARIANT  a snapshot is of just what the log holds below its offset: truncation removes those above the new end,
           and a start after a crash believes none above the recovery point.
PREVENTS   a producer known by batches of a history that was truncated, and its retry refused or doubled.
PROVED BY  tests/replication/log/test_recovery.py::test_a_snapshot_of_a_truncated_history_is_not_believed

Losing them all loses time only.
"""

from bisect import insort
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.ports import Buffer, Disk
from fencepost.cluster.wire.batch import BatchHeader, BatchRefused
from fencepost.cluster.wire.records import read_control, read_records

from .names import PRODUCERS, file_name
from .producer_snapshot import SnapshotDamaged, write_snapshot
from .producer_verdicts import CompletedTxn, Marker
from .producers_machine import ProducersMachine
from .segment import Segment
from .segment_files import read_if_there, remove_if_there
from .walk import damaged

if TYPE_CHECKING:
    from .log import Log

# Whoever was not seen for long may only seem so: the clock may have been set meanwhile (see producers_clock.py).
NOBODY_EXPIRES: Final = 0
KEEP: Final = 2
OVERDUE: Final = 1 << 62  # bytes since the last one
Copied = tuple[int, dict[int, bytes], list[tuple[int, int]]]  # ProducersMachine.copied
AT_ONCE_MAX: Final = 2_000  # producers written on the loop: 2 ms
INLINE_MAX: Final = 16 * 1024  # what a hint carries itself: no file to sync at a clean stop


def path_of(log: "Log", offset: int) -> str:
    return f"{log.folder}/{file_name(offset, PRODUCERS)}"


def write(log: "Log") -> bool:
    """At the log's end; synced by the next checkpoint. A full disk costs the snapshot, not the write."""
    log.bytes_since_snapshot = 0
    offset = log.log_end_offset
    if not log.created or (log.snapshots and log.snapshots[-1] == offset):
        return True
    producers = log.producers
    producers.end_offset = offset  # beyond its last batch when the log ends in a gap
    if len(producers) > AT_ONCE_MAX:
        if log in log.shared.snapshotting:
            _is_overdue(log)
        else:
            log.shared.snapshotting.add(log)
            work = _write_behind(log, offset, log.cuts, producers.copied())
            log.env.tasks.spawn(work, name=f"snapshot of {log.topic_partition}")
        return True
    disk = log.env.disk
    path = path_of(log, offset)
    try:
        _write_file(disk, path, producers.snapshot())
    except OSError as error:
        log.env.log.warn("snapshot_not_written", path=path, cause=str(error))
        remove_if_there(disk, path)
        _is_overdue(log)
        return False
    log.snapshots.append(offset)
    log.snapshots_unsynced.append(offset)
    log.unsettled()
    return True


def _is_overdue(log: "Log") -> None:
    """The next checkpoint tries again."""
    log.bytes_since_snapshot = OVERDUE
    log.unsettled()


async def _write_behind(log: "Log", offset: int, cuts: int, copied: Copied) -> None:
    """The same off the loop, for as many producers as would hold it up; what is copied of them is a table of names.

    The file gets its name when it is whole, and only if the log still holds what it is of, and is open: what a clean stop has not
    told of, the next start does not know.
    """
    disk, path = log.env.disk, path_of(log, offset)
    unnamed = f"{path}.tmp"
    try:
        await disk.run(lambda: _write_file(disk, unnamed, write_snapshot(*copied)))
        if log.cuts != cuts or log.removed:
            remove_if_there(disk, unnamed)
            return
        disk.rename(unnamed, path)
    except OSError as error:
        log.env.log.warn("snapshot_not_written", path=path, cause=str(error))
        _is_overdue(log)
        return
    finally:
        log.shared.snapshotting.discard(log)
    insort(log.snapshots, offset)
    log.snapshots_unsynced.append(offset)
    log.unsettled()


def _write_file(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append((data,))
    finally:
        file.close()


def for_hint(log: "Log") -> tuple[int, bytes]:
    """`producers_at` and `producers` of a hint. Blocks for a sync when the state is large."""
    if not log.producers_loaded:
        assert log.hint is not None, "only a log opened from a hint has its producers unread"
        return log.hint.producers_at, log.hint.producers
    producers = log.producers
    producers.end_offset = log.log_end_offset
    if not len(producers) and producers.first_unstable_offset is None:
        return -1, b""
    data = producers.snapshot()
    if len(data) <= INLINE_MAX:
        return -1, data
    log.env.disk.replace(path_of(log, log.log_end_offset), data)
    if log.log_end_offset not in log.snapshots:
        log.snapshots.append(log.log_end_offset)
    return log.log_end_offset, b""


def drop_old(log: "Log") -> None:
    """Two are enough, if the older is one that a start after a crash may believe, and that no truncation takes: what is before it
    may be gone by then, and with it all that says who has written it."""
    needed = min(log.settled_point, log.committed)
    while len(log.snapshots) > KEEP and log.snapshots[1] <= needed:
        _drop(log, 0)


def drop_above(log: "Log", end_offset: int) -> None:
    """The log was cut. The removal is durable before the recovery point passes here again (see sync.py)."""
    while log.snapshots and log.snapshots[-1] > end_offset:
        _drop(log, -1)
    log.snapshots_unsynced = [at for at in log.snapshots_unsynced if at <= end_offset]


def _drop(log: "Log", at: int) -> None:
    """Were it back after an end of power nobody would know of it, and a truncation would leave it: it would tell of another history."""
    remove_if_there(log.env.disk, path_of(log, log.snapshots.pop(at)))
    log.folder_version += 1


def load_producers(log: "Log", machine: ProducersMachine | None = None) -> ProducersMachine:
    """The state at the log's end: the newest snapshot, and what was written since. Blocks."""
    if machine is None:
        machine = new_machine(log)
    now_ms = log.shared.clock.now_ms()
    hint = log.hint
    if hint is not None and hint.producers_at < 0 and hint.log_end_offset == log.log_end_offset:
        machine.reset(log.log_end_offset)
        if hint.producers:
            machine.restore(hint.producers, now_ms=NOBODY_EXPIRES)
        return machine
    load_newest(log, machine)
    for segment, position, header in log.headers_from(machine.end_offset, log.log_end_offset):
        replay(machine, segment, position, header, now_ms)
    machine.end_offset = log.log_end_offset
    return machine


def new_machine(log: "Log") -> ProducersMachine:
    return ProducersMachine(
        expiration_ms=log.shared.producer_expiration_ms,
        budget=log.shared.budget,
        verify_transactions=log.shared.verify_transactions,
        name=str(log.topic_partition),
    )


def load_newest(log: "Log", machine: ProducersMachine) -> None:
    """Make `machine` what the newest good snapshot says; `machine.end_offset` is where to replay from."""
    while log.snapshots:
        path = path_of(log, log.snapshots[-1])
        try:
            data = read_if_there(log.env.disk, path)
            if data is None:
                raise SnapshotDamaged("it is gone")
            if machine.restore(data, now_ms=NOBODY_EXPIRES) == log.snapshots[-1]:
                if machine.end_offset < log.segments[0].base_offset:
                    break  # what is between the two is gone: better to know nobody than what was true once
                return
            why = "it is of another offset than its name says"
        except SnapshotDamaged as error:
            why = str(error)
        log.env.log.warn("snapshot_not_usable", path=path, cause=why)
        remove_if_there(log.env.disk, path)
        log.snapshots.pop()
    machine.reset(log.segments[0].base_offset)


def replay(
    machine: ProducersMachine, segment: Segment, position: int, header: BatchHeader, now_ms: int
) -> CompletedTxn | None:
    marker = None
    if header.is_control and header.record_count:
        try:
            marker = read_marker(segment.file().read(position, header.size), header)
        except BatchRefused as refused:
            why = f"a transaction's marker can't be read: {refused.message}"
            raise damaged(segment.path, position, header.base_offset, why) from refused
    return machine.apply(
        header, header.base_offset, header.last_offset, now_ms=now_ms, marker=marker
    )


def read_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """What a control batch says; None when the cleaner emptied it, or it is of a kind we do not know."""
    records = read_records(batch)
    control = read_control(records[0]) if records else None
    if control is None:
        return None
    return Marker(control.coordinator_epoch, control.commit, header.max_timestamp)
