"""What goes at the new end of a log, when its leader has another history.

INVARIANT  the checkpointed recovery point is at or below the new end, durably, before the first byte goes; and what went is gone for
           good before the first byte comes behind the cut (`Log.append`). Nothing above the cut counts as cleaned.
PREVENTS   a start after a crash taking the truncated log for one that lost synced data; the state of producers, leader epochs or
           aborted transactions outliving the batches that it came from; one log of two histories, when the power takes back the
           cut of one file and leaves what was written to the next; and a deleted key that comes back, as its tombstone was
           never set against it.
PROVED BY  tests/replication/log/test_log_model.py::test_the_log_answers_as_a_plain_list_does
           tests/replication/test_cuts_undone.py::test_what_was_cut_does_not_come_back_between_what_was_acknowledged
           tests/replication/log/test_what_outlives.py::test_what_comes_where_the_log_was_cut_is_cleaned_anew
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.cluster.base.errors import NO_DESCRIPTOR_ERRNOS, LogDamaged
from fencepost.cluster.base.ports import Buffer
from fencepost.cluster.wire.batch import BatchHeader

from . import aborted, snapshots
from .burial import bury_now, bury_rest
from .checkpoint import Kind
from .finding import end_before
from .names import EPOCHS
from .retention import forget
from .rolling import create_file, new_segment
from .segment import Segment
from .segment_files import read_if_there, remove_if_there

if TYPE_CHECKING:
    from .log import Log


def truncate_to(log: "Log", offset: int) -> None:
    """End at `offset`, or before it where a batch holds it: that goes whole. OSError and LogDamaged fail the log."""
    assert offset >= 0, f"truncation to {offset}"
    if offset >= log.log_end_offset:
        cut_epochs(log, log.log_end_offset)
        return
    if offset < log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset)
        return
    at = log.index_of(offset)
    segment = log.segments[at]
    edge = end_before(segment, offset)
    _look_ahead(log, at, edge.next_offset)
    _lower_below(log, edge.next_offset)
    try:
        _drop_from(log, at + 1)
        if segment.sealed:
            segment.unseal()
        log.size_bytes -= segment.size - edge.position
        segment.cut(*edge)
        _forget_above(log, segment)
    except (OSError, LogDamaged) as error:
        log.fail(error)
        raise


def _look_ahead(log: "Log", at: int, end: int) -> None:
    """Open what is needed behind the cut. Where there is no descriptor for it nothing has happened yet, and the cut can be tried
    again; half-way it would be the end of the log. Whatever else is wrong the cut itself finds."""
    cut = log.segments[at]
    replayed = [cut]
    try:
        if end >= 0:
            aborted.load(log, cut)
            newest = next((each for each in reversed(log.snapshots) if each <= end), -1)
            if newest >= 0:
                read_if_there(log.env.disk, snapshots.path_of(log, newest))
            replayed += [
                each
                for each in snapshots.sources(log)
                if each.base_offset < cut.base_offset and newest < each.next_offset
            ]
        for segment in replayed:
            if not segment.fresh:
                segment.file()
    except (OSError, LogDamaged) as error:
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR_ERRNOS:
            raise


def append_all_or_none(
    log: "Log", buffer: Buffer, headers: Sequence[tuple[int, BatchHeader]], now_ms: int
) -> None:
    """More than a segment holds: batch by batch, and all of it taken back when one fails. A sync that was under way says nothing of
    the log then (`cut_unsynced` tells): who wrote asks for another."""
    end = log.log_end_offset
    # What taking it back would have to write down is written first: behind a part that finds no room there is none for that.
    _lower_point(log, max(end - 1, 0))
    with memoryview(buffer) as whole:
        for position, header in headers:
            part = whole[position : position + header.size]
            try:
                log.append(part, [(0, header)], now_ms)
            except OSError:
                try:
                    truncate_to(log, end)
                except (OSError, LogDamaged) as failure:
                    log.fail(failure)  # some of it is there yet, and its sender is told of none
                raise


def _forget_above(log: "Log", segment: Segment) -> None:
    """`segment` is the last one now, and ends where the log does."""
    log.mark_dirty(segment)
    if segment in log.rolled:
        log.rolled.remove(segment)
    aborted.cut(log, segment, segment.next_offset)
    _end_at(log, segment.next_offset)
    if log.log_start_offset > log.log_end_offset:
        _lower_start(log, log.log_end_offset)
    snapshots.load_producers(log, log.producers)


def truncate_fully_and_start_at(log: "Log", offset: int) -> None:
    """Drop everything, with what retention has taken and no checkpoint has buried; the next batch is at `offset`."""
    _look_ahead(log, len(log.segments) - 1, -1)
    _lower_below(log, 0)
    try:
        _drop_from(log, 0)
        log.begins += 1
        while log.doomed:
            bury_now(log, log.doomed.pop())
        bury_rest(log)
        segment = new_segment(log, offset, log.env.clock.now_ms())
        log.segments.append(segment)
        log.bases.append(offset)
        create_file(log, segment)
        _end_at(log, offset)
        log.recovery_point = offset
        if offset < log.log_start_offset:
            _lower_start(log, offset)
        else:
            log.log_start_offset = offset
        _forget_epochs(log)
        snapshots.drop_above(log, -1)
        log.producers.reset(offset)
    except (OSError, LogDamaged) as error:
        log.fail(error)
        raise


def _forget_epochs(log: "Log") -> None:
    """In the file too, before anything of the next history is known to be synced: a start would take them for that one's."""
    log.epochs.clear()
    log.latest_epoch = -1
    log.epochs_unsaved = True
    remove_if_there(log.env.disk, f"{log.folder}/{EPOCHS}")
    log.folder_version += 1


def _lower_start(log: "Log", offset: int) -> None:
    """Durably, before anything is acknowledged behind it, or a start after a crash takes that for deleted; and behind the cut: of
    what is not buried yet nothing may count again."""
    log.log_start_offset = offset
    log.start_on_disk = min(log.start_on_disk, offset)
    log.lower(Kind.LOG_START, offset)


def _lower_below(log: "Log", end: int) -> None:
    """Below, not to the new end: a start after a kill must see that something of this log was not synced."""
    if log.cleaned_to > end:  # what comes there instead is yet to be cleaned
        log.cleaned_to = end
        log.lower(Kind.CLEANED, end)
    offsets = log.shared.offsets
    if offsets is not None and (offsets.get(Kind.HIGH_WATERMARK, log.topic_partition) or 0) > end:
        log.lower(Kind.HIGH_WATERMARK, end)  # data was given up: else no cut goes below it
    log.committed = min(log.committed, end)
    _lower_point(log, max(end - 1, 0))
    log.cut_unsynced = True


def _lower_point(log: "Log", point: int) -> None:
    log.lower(Kind.RECOVERY_POINT, point)
    log.settled_point = min(log.settled_point, point)
    log.point_on_disk = min(log.point_on_disk, point)


def _drop_from(log: "Log", at: int) -> None:
    """The newest first: a crash in between leaves a log without a hole."""
    log.cuts += 1
    log.hint = None
    while len(log.segments) > at:
        segment = log.segments.pop()
        log.bases.pop()
        forget(log, segment)
        bury_now(log, segment)


def _end_at(log: "Log", end_offset: int) -> None:
    log.log_end_offset = end_offset
    log.recovery_point = min(log.recovery_point, end_offset)
    cut_epochs(log, end_offset)
    snapshots.drop_above(log, end_offset)
    log.unsettled()


def cut_epochs(log: "Log", end_offset: int) -> None:
    if log.epochs.truncate_from_end(end_offset):
        log.epochs_unsaved = True
        log.latest_epoch = log.epochs.latest
        log.unsettled()
