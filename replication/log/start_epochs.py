"""Which leader epoch began where, for a log that is opened after a kill or an end of power: from its list, or else from its batches.

INVARIANT  a list is believed only if it gives the first batch at the log start that batch's own epoch.
PREVENTS   a former leader that is told to go on where its history has parted from this one: its records, which nobody was told of,
           would stand where acknowledged ones are.
PROVED BY  tests/replication/test_epochs_of_a_start.py::test_a_log_start_that_a_crash_takes_back_does_not_take_the_epochs

The list is a file of its own. A checkpoint makes it durable before the log start for which it was cut; and one that is under way
when a log begins anew may write it where the log of another history is by then.
"""

import errno
from typing import TYPE_CHECKING

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.wire.batch import BatchHeader

from . import truncation
from .epochs_machine import CheckpointDamaged
from .finding import headers_of
from .names import EPOCHS
from .segment_files import read_if_there
from .walk import walk_headers

if TYPE_CHECKING:
    from .log import Log
    from .segment import Segment


class StartEpochs:
    """One log's list while a start reads it. Of what is not in it each batch tells, when the start comes to it (`note`)."""

    def __init__(self, log: "Log", trusted: int, *, same_boot: bool) -> None:
        self.log = log
        self.trusted = trusted
        self.same_boot = same_boot
        self.at_start = -1  # the epoch in which the log start was written, if the list knows

    def load(self, first: int) -> None:
        """Up to the recovery point, in the segment `first`; what is above is the check's."""
        if not self._load_file():
            self._derive(first)

    def _load_file(self) -> bool:
        log = self.log
        data = read_if_there(log.env.disk, f"{log.folder}/{EPOCHS}")
        if data is None:
            return self.trusted <= log.bases[0]
        try:
            log.epochs.load_text(data.decode("ascii", errors="replace"))
        except CheckpointDamaged as error:
            self._say_unbelieved(str(error))
            return False
        self.at_start = log.epochs.epoch_for(log.log_start_offset)
        if not self._fits_the_first_batch():
            self._say_unbelieved(
                "it is not of the first batch: it was written for another log start"
            )
            log.epochs.clear()
            log.epochs_unsaved = True
            return False
        log.latest_epoch = log.epochs.latest
        truncation.cut_epochs(log, self.trusted)  # in the file too: the log may be as long again
        return True

    def _say_unbelieved(self, cause: str) -> None:
        path = f"{self.log.folder}/{EPOCHS}"
        self.log.env.log.warn("leader_epochs_damaged", path=path, cause=cause)

    def _fits_the_first_batch(self) -> bool:
        """Epochs only rise from batch to batch. No checksum covers a batch's own: where the second one's is lower the first has rotten,
        and the list, which has one, is right."""
        log = self.log
        start = log.log_start_offset
        segment = log.segments[log.index_of(start)]
        try:
            first, second = self._first_two(segment, start)
        except LogDamaged:
            return True  # the check judges that
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return True  # who reads there meets it
        if (
            first is None
            or log.epochs.epoch_for(max(first.base_offset, start)) == first.leader_epoch
        ):
            return True
        return second is not None and second.leader_epoch < first.leader_epoch

    def _first_two(
        self, segment: "Segment", start: int
    ) -> tuple[BatchHeader | None, BatchHeader | None]:
        """That reach behind `start`. Where there is no index the making of one would meet a torn end: then from the file's beginning."""
        try:
            headers = headers_of(segment, start)
            _, first = next(headers, (0, None))
        except LogDamaged:
            every = walk_headers(segment.file(), 0, segment.size, segment.base_offset)
            headers = (each for each in every if each[1].last_offset >= start)
            _, first = next(headers, (0, None))
        try:
            _, second = next(headers, (0, None))
            at = self.log.index_of(segment.base_offset) + 1
            if second is None and at < len(self.log.segments):
                following = self.log.segments[at]
                headers = walk_headers(following.file(), 0, following.size, following.base_offset)
                _, second = next(headers, (0, None))
        except LogDamaged:
            second = None  # torn, and no word against the first
        return first, second

    def _derive(self, first: int) -> None:
        """Every batch carries its leader epoch: read them all, and none from where a torn end is the check's to judge."""
        for segment in self.log.segments[:first]:
            for _, header in headers_of(segment, segment.base_offset):
                self.note(header)
        segment = self.log.segments[first]
        if self.same_boot and segment.base_offset < self.trusted:
            base = segment.base_offset
            for _, header in walk_headers(segment.file(), 0, segment.size, base):
                self.note(header)
                if header.next_offset >= self.trusted:
                    break

    def note(self, header: BatchHeader) -> None:
        if header.leader_epoch > self.log.latest_epoch:
            self.log.assign_epoch(header.leader_epoch, header.base_offset)

    def finish(self, end: int) -> None:
        """All up to the log's end was noted. Where nothing is left in it the list still tells who has written what was."""
        log = self.log
        changed = log.epochs.truncate_from_end(end)
        if log.epochs.truncate_from_start(log.log_start_offset) or changed:
            log.epochs_unsaved = True
        is_deleted = end == log.log_start_offset > 0
        if is_deleted and not log.epochs.epochs and self.at_start >= 0:
            log.assign_epoch(self.at_start, end)
        log.latest_epoch = log.epochs.latest
