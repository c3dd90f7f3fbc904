"""Which snapshot of producers stands for segments that are out of the log, so that they may go.

INVARIANT  of every producer that a segment tells of, a start finds a snapshot that it believes before that segment is gone, whatever is
           cut until then.
PREVENTS   a retry that is written again, behind what came after it: nobody knows its producer any more.
PROVED BY  tests/replication/log/test_what_outlives.py::test_who_wrote_what_was_deleted_is_known_after_a_crash
           tests/replication/log/test_spare.py::test_nobody_is_forgotten_though_the_disk_is_full
"""

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .log import Log


def covered(log: "Log", point: int) -> int:
    """How many of the segments that are out of the log may go once a checkpoint says that it is settled up to `point`: those that a
    start does not need to know who has written, nor a cut. It replays the others, though the log starts behind them.

    A cut to the high watermark leaves a recovery point below that: it takes the snapshot that is just there, unless the log starts
    there too.
    """
    return _doomed_before(log, standing(log, point))


def standing(log: "Log", point: int) -> int:
    """The newest snapshot up to `point` that no cut takes from a start; or -1."""
    start, committed = log.log_start_offset, cut_at_least(log)
    good = [at for at in log.snapshots if at <= point and (at < committed or at <= start)]
    return good[-1] if good else -1


def cut_at_least(log: "Log") -> int:
    """No truncation goes below this (unless a person gives data up)."""
    return max(log.committed, log.log_start_offset)


def covered_by_now(log: "Log") -> int:
    """How many may go though no checkpoint says that the log begins behind them: a start believes the snapshot by what is on the disk
    now, and finds the log where they end. It does not know the log's start, so a cut to just there takes it (see `covered`)."""
    for at in reversed(log.snapshots):
        if at <= log.point_on_disk and at < log.committed and at not in log.snapshots_unsynced:
            return _doomed_before(log, at)
    return 0


def _doomed_before(log: "Log", offset: int) -> int:
    if not log.doomed:
        return 0
    nexts = [*(segment.base_offset for segment in log.doomed[1:]), log.bases[0]]
    return bisect_right(nexts, offset)


def lacks_one(log: "Log") -> bool:
    """Something is out of the log for which no snapshot will ever stand but one that is yet to be begun."""
    newest = log.snapshots[-1] if log.snapshots else -1
    return bool(log.doomed) and newest < log.bases[0] and log not in log.shared.snapshotting


def waits_for_sync(log: "Log") -> bool:
    """What was written before the snapshot that is to stand for what is out of the log may be lost with the power yet."""
    return bool(covered(log, log.log_end_offset)) and not covered(log, log.recovery_point)


def may_free(log: "Log") -> bool:
    """Whether what is out of the log may go without anything else being written to it."""
    is_late = lacks_one(log) or log in log.shared.snapshotting
    return is_late or bool(covered(log, log.log_end_offset))


def needs_room(log: "Log") -> bool:
    """For its snapshot there is none, what is being removed was not enough, and more may go."""
    waits = log in log.shared.snapshotting or log.burials
    return log.snapshot_lacks_room and not waits and covered_by_now(log) > 0
