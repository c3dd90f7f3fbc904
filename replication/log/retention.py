"""What goes at the old end of a log: by age, by size, or because someone said so.

INVARIANT  a segment leaves the folder only after a snapshot that stands for it is durable, and a log start offset behind it or
           (where the disk is too full to write that) after all segments before it left it durably, so that a crash in between
           leaves no hole; and no segment goes that the high watermark has not passed.
PREVENTS   a start after a crash finding the middle of what was being deleted; a log start above what is committed.
PROVED BY  tests/replication/log/test_retention.py::test_a_crash_while_segments_are_deleted_leaves_no_hole

Rules and their order are Kafka's (UnifiedLog.deleteOldSegments). Files are renamed to `.deleted` and removed after
file.delete.delay.ms; who still holds one open goes on reading it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fencepost.cluster.base.errors import LogDamaged

from .burial import Burial, never_synced, tell
from .halfway import Halfway
from .names import DELETED
from .rolling import create_file, roll
from .segment import Segment
from .segment_files import rename_if_there, sync_folder
from .standing import covered_by_now
from .walk import Cold

if TYPE_CHECKING:
    from .log import Log


def advance_start(log: "Log", offset: int) -> None:
    """Nothing before `offset` is in the log any more. Durable with the first checkpoint that may say so (settle.py)."""
    offset = min(offset, log.log_end_offset)
    if offset <= log.log_start_offset:
        return
    log.log_start_offset = offset
    if log.epochs.truncate_from_start(offset):
        log.epochs_unsaved = True
    log.unsettled()


async def know_ages(log: "Log", now_ms: int) -> None:
    """Before `apply`: the ages that it is going to ask for, off the loop. What can't be read it meets itself, behind all that it can do."""
    if not log.config.delete or log.config.retention_ms < 0:
        return
    is_too_old, is_too_much = _is_too_old(log, now_ms), _is_over_size(log)
    for segment in log.segments[log.index_of(log.log_start_offset) :]:
        if is_too_much(segment, -1):
            continue
        try:
            await _know_age(log, segment)
            if segment not in log.segments or not is_too_old(segment, -1):
                return
        except (OSError, LogDamaged):
            return


async def _know_age(log: "Log", segment: Segment) -> None:
    try:
        segment.largest_timestamp(block=False)
    except Cold as cold:
        await log.env.disk.run(cold.work)


def apply(log: "Log", now_ms: int, high_watermark: int) -> int:
    """One round; how many segments went. Expires producers too."""
    clock = log.shared.clock
    if log.producers_loaded and clock.may_expire(log.producers.expiration_ms):
        log.producers.expire(clock.now_ms())
    if len(log.segments) == 1 and log.active.size == 0:
        return 0
    gone = _delete(log, now_ms, high_watermark, _is_before_start(log))
    if log.config.delete:
        gone += _delete(log, now_ms, high_watermark, _is_over_size(log))
        gone += _delete(log, now_ms, high_watermark, _is_too_old(log, now_ms))
    return gone


# Whether a segment that begins a log may go; `next_base` is -1 for the last one.
Rule = Callable[[Segment, int], bool]


def _is_before_start(log: "Log") -> Rule:
    return lambda _, next_base: 0 <= next_base <= log.log_start_offset


def _is_over_size(log: "Log") -> Rule:
    limit = log.config.retention_bytes
    over = log.size_bytes - limit if limit >= 0 else -1

    def rule(segment: Segment, _: int) -> bool:
        nonlocal over
        if over - segment.size < 0:
            return False
        over -= segment.size
        return True

    return rule


def _is_too_old(log: "Log", now_ms: int) -> Rule:
    limit = log.config.retention_ms

    def rule(segment: Segment, _: int) -> bool:
        if limit < 0:
            return False
        newest = segment.largest_timestamp()
        if newest < 0:  # Kafka takes the file's time; this is when it was made, or opened
            newest = segment.created_ms
        return now_ms - newest > limit

    return rule


def _delete(log: "Log", now_ms: int, high_watermark: int, may_go: Rule) -> int:
    count = 0
    for at, segment in enumerate(log.segments):
        is_last = at + 1 == len(log.segments)
        upper = log.log_end_offset if is_last else log.bases[at + 1]
        if (
            high_watermark < upper
            or (is_last and segment.size == 0)
            or not may_go(segment, -1 if is_last else upper)
        ):
            break
        count += 1
    if count == 0:
        return 0
    with Halfway(log, harmless=(OSError, LogDamaged)):  # these come before anything is taken out
        return _take_out(log, count, now_ms)


def _take_out(log: "Log", count: int, now_ms: int) -> int:
    """The first `count` segments; how many it was."""
    if count == len(log.segments):
        roll(log, now_ms)
    try:
        create_file(log, log.segments[count])
    except OSError:
        if count == 1:
            raise
        count -= 1  # a start that finds no file at all takes the log for one that was never written
    advance_start(log, log.bases[count])
    for segment in log.segments[:count]:
        forget(log, segment)
        log.doomed.append(segment)
    del log.segments[:count], log.bases[:count]
    log.unsettled()
    return count


async def make_room(log: "Log") -> None:
    """The disk is too full to say where the log begins now, or who has written what is before that, and stays so unless its doomed
    segments go all the same: those for which an older snapshot stands. The others wait until a newer one is written.

    1. The folder is synced: the file that the log goes on in is there.    crash: nothing happened
    2. The oldest segment loses its `.log`, and the folder is synced.      crash: the log begins with the next one
    3. Its other files follow (its aborted transactions not before: a crash may leave the segment in the log).
    4. The same with the next one.
    """
    disk, begins = log.env.disk, log.begins

    def is_void() -> bool:
        """What has those names now may be another log's, or not be doomed."""
        return log.removed or log.begins != begins

    for at, segment in enumerate(log.doomed[: covered_by_now(log)]):
        try:
            if at == 0:
                create_file(log, log.segments[0])
                await disk.run(sync_folder, disk, log.folder)
            if is_void():
                return
            never_synced(log, segment)
            rename_if_there(disk, segment.path, segment.path + DELETED)
            await disk.run(sync_folder, disk, log.folder)
            if is_void():
                return
            Burial(log, segment)
        except (OSError, LogDamaged) as error:
            tell(log, segment, error)
            return
        log.doomed.remove(segment)


def forget(log: "Log", segment: Segment) -> None:
    """It is no part of the log any more. Its file is synced yet: until it is buried a start may want to know who has written it."""
    log.size_bytes -= segment.size
    for waiting in (log.rolled, log.aborted_unsynced):
        if segment in waiting:
            waiting.remove(segment)
    log.shared.pool.index_gone(segment)
