"""Files of producer state beside a log, so that a start replays the end of the log and not all of it.

INVARIANT  a snapshot is of just what the log holds below its offset: truncation removes those above the new end,
           and a start after a crash believes none above the recovery point.
PREVENTS   a producer known by batches of a history that was truncated, and its retry refused or doubled.
PROVED BY  tests/replication/log/test_recovery.py::test_a_snapshot_of_a_truncated_history_is_not_believed

Where all is lost that was below the log start, they alone know who wrote it: no segment goes before one stands for it
(`standing.py`), and it is written twice (`snapshot_file.py`). As long as the segments are there losing the snapshots loses time only.
"""

import contextlib
from bisect import bisect_right, insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, LogDamaged
from fencepost.cluster.base.ports import Buffer, Disk
from fencepost.cluster.wire.batch import BatchHeader, BatchRefused
from fencepost.cluster.wire.records import read_control, read_records

from .finding import headers_of
from .names import PRODUCERS, file_name
from .producer_snapshot import SnapshotDamaged, most_bytes, read_snapshot, write_snapshot
from .producer_verdicts import CompletedTxn, Marker
from .producers_machine import ProducersMachine
from .segment import Segment
from .segment_files import read_if_there, remove_if_there
from .snapshot_file import copies, twice
from .standing import cut_at_least
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
    return path_in(log.folder, offset)


def path_in(folder: str, offset: int) -> str:
    return f"{folder}/{file_name(offset, PRODUCERS)}"


def write(log: "Log") -> bool:
    """At the log's end; synced by the next checkpoint. A full disk costs the snapshot, not the write."""
    return _write(log, log.log_end_offset, log.producers)


def write_again(log: "Log") -> None:
    """The one that found no room, or a new one: the high watermark may never pass one that is made where the log ends by now, and
    what it does not pass stands for nothing that is deleted."""
    if log.unwritten_snapshot is None or log in log.shared.snapshotting:
        write(log)
        return
    log.bytes_since_snapshot = 0
    offset, data = log.unwritten_snapshot
    if len(data) > most_bytes(AT_ONCE_MAX) and not log.shared.stops:
        _begin_behind(log, offset, lambda: data)
    else:
        _write_at_once(log, offset, data)


def make_up(log: "Log", at: int, producers: ProducersMachine) -> None:
    """By a start that has come to `at`: those of the last rolls were above the recovery point. What a replay would need instead may
    be deleted any time; and that stays until one stands for it, so it is made in passing and not at the end only, where the high
    watermark may be for good."""
    if log.active.base_offset > (log.snapshots[-1] if log.snapshots else log.bases[0]):
        _write(log, at, producers)


def make_up_the_last_rolls(log: "Log", now_ms: int) -> None:
    """By a start, where that one found no room, and only one that was made at the log's end is of what is in sealed files. If nobody
    writes any more the high watermark stays there, and what is deleted would wait for good (`standing`)."""
    roll = log.active.base_offset
    at = bisect_right(log.snapshots, roll)
    if not 0 < at < len(log.snapshots) or not log.bases[0] <= log.snapshots[at - 1] < roll:
        return
    older, machine = log.snapshots[at - 1], new_machine(log)
    try:
        data = read_if_there(log.env.disk, path_of(log, older)) or b""
        if _of_a_whole_copy(data, lambda one: machine.restore(one, now_ms=NOBODY_EXPIRES)) != older:
            return
        for segment in log.segments[log.index_of(older) : -1]:
            for position, header in headers_of(segment, older):
                replay(machine, segment, position, header, now_ms)
        _write(log, roll, machine)
    except (SnapshotDamaged, LogDamaged, OSError) as error:  # the newest does without it
        log.env.log.warn("snapshot_not_written", path=path_of(log, roll), cause=str(error))
    finally:
        machine.reset(0)


def _write(log: "Log", offset: int, producers: ProducersMachine) -> bool:
    log.bytes_since_snapshot = 0
    if not log.created or offset in log.snapshots:
        return True
    producers.end_offset = offset  # beyond its last batch when the log ends in a gap
    if log in log.shared.snapshotting:
        _is_overdue(log)
        return True
    if len(producers) > AT_ONCE_MAX and not log.shared.stops:
        copied = producers.copied()
        _begin_behind(log, offset, lambda: write_snapshot(*copied))
        return True
    return _write_at_once(log, offset, producers.snapshot())


def _write_at_once(log: "Log", offset: int, data: bytes) -> bool:
    path = path_of(log, offset)
    try:
        _write_file(log, path, data)
    except OSError as error:
        remove_if_there(log.env.disk, path)
        _failed(log, offset, error, data)
        return False
    _is_there(log, offset)
    return True


def write_durably(log: "Log", data: bytes) -> int:
    """At the log's end, and on the disk when it returns that offset. Blocks."""
    offset = log.log_end_offset
    log.env.disk.replace(path_of(log, offset), twice(data))
    if offset not in log.snapshots:
        insort(log.snapshots, offset)
    return offset


def _is_there(log: "Log", offset: int) -> None:
    insort(log.snapshots, offset)
    log.snapshots_unsynced.append(offset)
    log.snapshot_lacks_room = False
    if log.unwritten_snapshot is not None:
        if log.unwritten_snapshot[0] == offset:
            log.unwritten_snapshot = None
        else:  # a newer one, which the high watermark may never pass
            _is_overdue(log)
    log.unsettled()


def _failed(log: "Log", offset: int, error: OSError, data: bytes | None = None) -> None:
    """`data` is what was to be written, if that is what the log holds below `offset` yet. The first one is kept, until one is written."""
    log.env.log.warn("snapshot_not_written", path=path_of(log, offset), cause=str(error))
    log.snapshot_lacks_room = error.errno in DISK_FULL_ERRNOS
    if log.snapshot_lacks_room and log.unwritten_snapshot is None and data is not None:
        log.unwritten_snapshot = offset, data
    _is_overdue(log)


def _is_overdue(log: "Log") -> None:
    """The next checkpoint tries again."""
    log.bytes_since_snapshot = OVERDUE
    log.unsettled()


def give_up(log: "Log", offset: int, error: OSError) -> None:
    """It can't be made durable."""
    if offset in log.snapshots:
        try:
            _drop(log, log.snapshots.index(offset))
        except OSError as failure:
            log.fail(failure)
        log.snapshots_unsynced = [each for each in log.snapshots_unsynced if each != offset]
    _failed(log, offset, error)


def _begin_behind(log: "Log", offset: int, make: Callable[[], bytes]) -> None:
    work = _write_behind(log, offset, log.cuts, make)
    task = log.env.tasks.spawn(work, name=f"snapshot of {log.topic_partition}")
    log.shared.snapshotting[log] = task


async def _write_behind(log: "Log", offset: int, cuts: int, make: Callable[[], bytes]) -> None:
    """The same off the loop, for as many producers as would hold it up; what is copied of them is a table of names.

    The file gets its name when it is whole, and only if the log still holds what it is of, and is open: what a clean stop has not
    told of, the next start does not know.
    """
    disk, path = log.env.disk, path_of(log, offset)
    unnamed = f"{path}.tmp"
    try:
        data = await disk.run(make)
        await disk.run(_write_file, log, unnamed, data)
        if log.cuts != cuts or log.removed:
            remove_if_there(disk, unnamed)
            return
        disk.rename(unnamed, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            remove_if_there(disk, unnamed)
        _failed(log, offset, error, data if log.cuts == cuts else None)
        return
    finally:
        log.shared.snapshotting.pop(log, None)
    _is_there(log, offset)


def _write_file(log: "Log", path: str, data: bytes) -> None:
    """Twice; where there is no room for that, once; nor for that, over what is kept for it, if something waits for this."""
    disk, spare = log.env.disk, log.shared.spare
    try:
        _write_anew(disk, path, twice(data))
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        try:
            _write_anew(disk, path, data)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS or spare is None or not log.doomed:
                raise
            if not spare.place(path, data):
                raise
            return
    if spare is not None:
        spare.found_room()


def _write_anew(disk: Disk, path: str, data: bytes) -> None:
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
    return write_durably(log, data), b""


def drop_old(log: "Log") -> None:
    """Two are enough, if the older is one that a start after a crash may believe, and that no truncation takes: what is before it
    may be gone by then, and with it all that says who has written it."""
    needed = min(log.settled_point, cut_at_least(log))
    while (
        len(log.snapshots) > KEEP
        and log.snapshots[1] < needed
        and log.snapshots[1] not in log.snapshots_unsynced
    ):
        try:
            _drop(log, 0)
        except OSError as error:
            log.env.log.warn(
                "segment_not_removed", path=path_of(log, log.snapshots[0]), cause=str(error)
            )
            return


def drop_above(log: "Log", end_offset: int) -> None:
    """The log was cut. The removal is durable before the recovery point passes here again (see sync.py)."""
    while log.snapshots and log.snapshots[-1] > end_offset:
        _drop(log, -1)
    log.snapshots_unsynced = [at for at in log.snapshots_unsynced if at <= end_offset]
    if log.unwritten_snapshot is not None and log.unwritten_snapshot[0] > end_offset:
        log.unwritten_snapshot = None


def _drop(log: "Log", at: int) -> None:
    """Were it back after an end of power nobody would know of it, and a truncation would leave it: it would tell of another history."""
    remove_if_there(log.env.disk, path_of(log, log.snapshots[at]))
    log.snapshots.pop(at)
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
    for segment in sources(log):
        if segment.next_offset > machine.end_offset:
            for position, header in headers_of(segment, machine.end_offset):
                replay(machine, segment, position, header, now_ms)
    machine.end_offset = log.log_end_offset
    return machine


def sources(log: "Log") -> list[Segment]:
    """What can be replayed: the log, and before it what is out of it and not removed yet."""
    at = len(log.doomed)
    while at and log.env.disk.exists(log.doomed[at - 1].path):
        at -= 1
    return log.doomed[at:] + log.segments


def new_machine(log: "Log") -> ProducersMachine:
    return ProducersMachine(
        expiration_ms=log.shared.producer_expiration_ms,
        budget=log.shared.budget,
        verify_transactions=log.shared.verify_transactions,
        name=str(log.topic_partition),
    )


def load_newest(log: "Log", machine: ProducersMachine) -> None:
    """Make `machine` what the newest good snapshot says; `machine.end_offset` is where to replay from."""
    first = sources(log)[0].base_offset
    while log.snapshots:
        path = path_of(log, log.snapshots[-1])
        try:
            data = read_if_there(log.env.disk, path)
            if data is None:
                raise SnapshotDamaged("it is gone")
            end = _of_a_whole_copy(data, lambda one: machine.restore(one, now_ms=NOBODY_EXPIRES))
            if end == log.snapshots[-1]:
                if machine.end_offset < first:
                    break  # what is between the two is gone: better to know nobody than what was true once
                return
            why = "it is of another offset than its name says"
        except SnapshotDamaged as error:
            why = str(error)
        log.env.log.warn("snapshot_not_usable", path=path, cause=why)
        remove_if_there(log.env.disk, path)
        log.snapshots.pop()
    machine.reset(first)


def _of_a_whole_copy(data: bytes, read: Callable[[bytes], int]) -> int:
    """SnapshotDamaged where none is whole."""
    first: SnapshotDamaged | None = None
    for each in copies(data):
        try:
            return read(each)
        except SnapshotDamaged as error:
            first = first or error
    assert first is not None, "there is one copy at least"
    raise first


def drop_damaged(log: "Log") -> None:
    """Whatever was written and not synced before the power went stands for nothing. The newest has been looked at."""
    for offset in log.snapshots[:-1]:
        path = path_of(log, offset)
        try:
            data = read_if_there(log.env.disk, path) or b""
            if _of_a_whole_copy(data, lambda one: read_snapshot(one).end_offset) == offset:
                continue
        except SnapshotDamaged as error:
            log.env.log.warn("snapshot_not_usable", path=path, cause=str(error))
        remove_if_there(log.env.disk, path)
        log.snapshots.remove(offset)


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
