"""The end of a log's time in memory, and what a clean one leaves for the next start.

INVARIANT  a hint is given only of a log whose aborted transactions, leader epochs and indexes are on the disk too.
PREVENTS   a start from the hint with an index that lacks an aborted transaction, so that it is read as committed.
PROVED BY  tests/replication/log/test_closing.py::test_an_aborted_transaction_that_could_not_be_written_down_stays_aborted
"""

from typing import TYPE_CHECKING

from . import aborted, snapshots
from .hints import LogHint, SegmentHint
from .rolling import write_index_files

if TYPE_CHECKING:
    from .log import Log


def close(log: "Log", *, clean: bool) -> LogHint | None:
    """Let go of the files. When `clean`, and all was synced and settled before, the answer is what to start from."""
    hint = None
    log.cuts += 1  # what is under way off the loop is of a log that is open
    if clean and _is_settled(log):
        write_index_files(log, log.active)
        hint = _write_hint(log)
    for burial in list(log.burials.values()):
        if log.removed:  # its folder goes, with all that is in it
            burial.forget()
        else:
            burial.finish()
    for segment in log.segments:
        log.shared.pool.close(segment)
        log.shared.pool.index_gone(segment)
    if log._producers is not None:
        log._producers.reset(log.log_end_offset)  # gives back its share of the budget
    log.shared.unsettled.pop(log, None)
    return hint


def _is_settled(log: "Log") -> bool:
    """Whether the disk has all of it, and all that stands beside it: a start from a hint looks at neither.

    What was never written has nothing on the disk that could be old.
    """
    is_synced = not log.dirty and log.recovery_point == log.log_end_offset
    waits = log.created and log in log.shared.unsettled
    return log.failed is None and is_synced and not waits


def _write_hint(log: "Log") -> LogHint:
    """Blocks for a few syncs, unless nothing was written since the log was opened."""
    unstable = log.first_unstable_offset
    producers_at, producers = snapshots.for_hint(log)
    segments = [
        SegmentHint(
            segment.base_offset, segment.size, segment.max_timestamp, segment.offset_of_max,
            segment.first_timestamp, aborted.has_any(log, segment),
        )
        for segment in log.segments
    ]  # fmt: skip
    return LogHint(
        log.topic_id.bytes if log.topic_id else b"",
        log.log_start_offset,
        log.log_end_offset,
        segments if log.created else [],
        list(zip(log.epochs.epochs, log.epochs.starts, strict=True)),
        -1 if unstable is None else unstable,
        log.snapshots,
        producers_at,
        producers,
    )
