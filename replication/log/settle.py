"""Between a log that is synced and a checkpoint that says so: what stands beside the log must be durable first.

INVARIANT  below the checkpointed recovery point the indexes of sealed segments, the aborted transactions, the
           leader epochs and at least one producer snapshot (or none is needed) are on the disk. The checkpointed log
           start is at or below the recovery point that goes with it. A segment goes when both are durable, and a snapshot that a
           start believes, whatever is cut until then, stands for all that the segment told.
PREVENTS   a start that trusts the checkpoint and finds an old list of leader epochs, so that a follower is told to
           keep what it must cut; or an aborted transaction shown as data; or neither the records of a producer nor a snapshot
           that it may believe, so that a retry is written again.
PROVED BY  tests/replication/log/test_recovery.py::test_everything_beside_the_log_is_as_it_was
           tests/replication/log/test_what_outlives.py::test_who_wrote_what_was_deleted_is_known_after_a_crash
           tests/replication/log/test_producers_by_chance.py::test_who_has_written_is_known_after_whatever_happened

Nothing of this is on the way to an acknowledgement: it runs with each checkpoint, off the loop.
"""

from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, NO_DESCRIPTOR_ERRNOS, NO_ROOM_ERRNOS
from fencepost.cluster.base.ports import Disk

from . import aborted, snapshots, standing
from .checkpoint import Kind
from .names import EPOCHS, INDEX, TIMEINDEX, TXNINDEX
from .producer_snapshot import most_bytes
from .rolling import write_index_files
from .segment_files import NamesLost, sync_folder, sync_if_there, write_again
from .sync import lose

if TYPE_CHECKING:
    from .log import Log

SNAPSHOT_EVERY_BYTES: Final = (
    64 * 1024 * 1024
)  # replayed at a start after a kill: a third of a second


def durable_point(log: "Log") -> int:
    """How far all of it is on the disk, whatever comes undone."""
    return log.settled_point if log.cut_unsynced or log.names_lost else log.recovery_point


class Settlement:
    """One log's share in a checkpoint. Made on the loop, `run` off it, `done` on it again."""

    __slots__ = (
        "aborted", "begins", "cuts", "doomed", "epochs_path", "epochs_text", "error", "folder", "log", "paths",
        "point", "rolled", "snapshots", "start", "unwritten",
    )  # fmt: skip

    def __init__(self, log: "Log") -> None:
        self.log = log
        spare = log.shared.spare
        if spare is not None and log.producers_loaded and len(log.producers):
            spare.may_need(most_bytes(len(log.producers)))
        if log.failed is None:
            if log.bytes_since_snapshot >= SNAPSHOT_EVERY_BYTES or standing.lacks_one(log):
                _write_snapshot(log)
            if log.active.index_waits():
                write_index_files(log, log.active)
        self.cuts, self.begins = log.cuts, log.begins
        self.point = durable_point(log)
        # None: it waits for a sync (`on_log_start_moved` asks for one), which a log that failed does not get any more.
        self.start: int | None = log.log_start_offset
        if log.failed is not None or log.log_start_offset > self.point:
            self.start = None
        self.error: OSError | None = None
        self.folder = log.folder
        self.rolled = log.rolled
        # And how many of their entries are durable: those that an earlier checkpoint wrote.
        self.aborted = [
            (each, 0 if each.aborted is None else each.aborted.written)
            for each in log.aborted_unsynced
        ]
        self.snapshots = log.snapshots_unsynced
        self.unwritten: dict[int, OSError] = {}  # those whose sync failed
        count = 0 if self.start is None else standing.covered(log, self.point)
        self.doomed, log.doomed = log.doomed[:count], log.doomed[count:]
        log.rolled, log.aborted_unsynced, log.snapshots_unsynced = [], [], []
        try:
            for segment, _ in self.aborted:
                aborted.write(log, segment)
        except OSError as error:
            self.error = error
        self.paths = [
            segment.path_of(suffix) for segment in self.rolled for suffix in (INDEX, TIMEINDEX)
        ]
        self.paths += [segment.path_of(TXNINDEX) for segment, _ in self.aborted]
        self.epochs_path = f"{log.folder}/{EPOCHS}"
        self.epochs_text: str | None = None
        if log.epochs_unsaved and log.created:
            self.epochs_text = log.epochs.to_text()
            log.epochs_unsaved = False

    @property
    def has_work(self) -> bool:
        return bool(self.paths or self.snapshots or self.doomed or self.epochs_text is not None)

    def run(self, disk: Disk) -> None:
        """Blocks. What fails is left for the next checkpoint."""
        if self.error is not None:
            return
        try:
            for path in self.paths:
                sync_if_there(disk, path)
            for offset in self.snapshots:
                self._sync_snapshot(disk, offset)
            if self.epochs_text is not None:
                disk.place(self.epochs_path, self.epochs_text.encode())
            if self.has_work:  # with the file that the log goes on in
                sync_folder(disk, self.folder)
        except OSError as error:
            self.error = error

    def _sync_snapshot(self, disk: Disk, offset: int) -> None:
        """One that can't be made durable is given up, not synced again (fsyncgate); all else does without it. A start may have found it."""
        try:
            write_again(disk, snapshots.path_in(self.folder, offset))
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRNOS:
                raise
            self.unwritten[offset] = error

    def done(self) -> None:
        """On the loop again."""
        log = self.log
        if log.removed:  # while this waited for the disk: its folder may be another log's
            return
        for offset, error in self.unwritten.items():
            snapshots.give_up(log, offset, error)
        if self.error is not None:
            log.env.log.warn("log_not_settled", folder=self.folder, cause=str(self.error))
            self._take_back_segments()
            log.snapshots_unsynced += [each for each in self.snapshots if each in log.snapshots]
            self.take_back_doomed()
            log.epochs_unsaved |= self.epochs_text is not None
            if isinstance(self.error, NamesLost):
                lose(log, self.error)
            if log.names_lost:
                log.shared.unsettled.pop(log, None)  # it is settled no further
            return
        start_told = self.cuts == log.cuts and self.start == log.log_start_offset
        if self.cuts != log.cuts or self.unwritten or log.names_lost:
            self.take_back_doomed()
        if self.cuts != log.cuts:  # what was written of them is of before
            log.epochs_unsaved |= self.epochs_text is not None
        if self.cuts == log.cuts and not log.names_lost:
            if self.point > log.settled_point:
                log.settled_point = self.point
                log.put(Kind.RECOVERY_POINT, self.point)
            if self.start:
                log.put(Kind.LOG_START, self.start)
        if log.names_lost or not (
            log.rolled or log.aborted_unsynced or log.snapshots_unsynced or log.doomed
            or log.epochs_unsaved or log.recovery_point > log.settled_point or not (start_told or log.failed)
        ):  # fmt: skip
            log.shared.unsettled.pop(log, None)

    def is_durable(self) -> None:
        """What was put is on the disk: also where the log begins further on by now."""
        log = self.log
        if self.error is None and self.cuts == log.cuts and not log.names_lost:
            log.point_on_disk = max(log.point_on_disk, min(self.point, log.settled_point))
            if self.start:
                log.start_on_disk = self.start

    def _take_back_segments(self) -> None:
        """Those that are in the log yet: another one may have the name of one that was truncated meanwhile."""
        log = self.log
        assert self.error is not None, "nothing is taken back of what is durable"
        log.rolled += [each for each in self.rolled if each in log.segments]
        for segment, durable in self.aborted:
            if segment in log.segments:
                assert segment.aborted is not None, "what waits to be written is loaded"
                # After a sync that failed what it was to write is written once more; not more, as the disk may be full.
                segment.aborted.written = min(segment.aborted.written, durable)
                segment.aborted.unsure |= self.error.errno not in NO_ROOM_ERRNOS
                aborted.mark(log, segment)

    def take_back_doomed(self) -> None:
        """The disk does not say yet that they are out of the log: the next checkpoint tries again. Not where the log began anew
        meanwhile: what has their names now is in it (`bury_rest`)."""
        log = self.log
        if self.doomed and not log.removed and log.begins == self.begins:
            log.doomed[:0] = self.doomed  # the oldest first
            log.unsettled()
        self.doomed = []

    @property
    def found_disk_full(self) -> bool:
        is_full = self.error is not None and self.error.errno in DISK_FULL_ERRNOS
        return is_full or standing.needs_room(self.log)


def _write_snapshot(log: "Log") -> None:
    if not standing.needs_room(log):
        snapshots.write_again(log)
