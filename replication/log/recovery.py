"""Opening a log: from a clean stop's hints without a look, or after a crash with one at all that may be torn.

INVARIANT  what lies below the recovery point was synced and is never dropped: damage there is LogDamaged, with file
           and position. Above it, and only there, the log may end early.
PREVENTS   acknowledged data cut away in silence, because one bad sector looked like the end of the log.
PROVED BY  tests/replication/log/test_recovery.py::test_damage_below_the_recovery_point_is_refused

What "torn" can mean depends on what happened (README, Decisions):
- killed on this boot: the page cache has it all, at most the last batch is half there. Anything else is damage.
- the machine went down: what was not synced is gone in any order, so the log ends before the first bad batch. If
  whole batches follow it they are kept aside in a `.torn` file and an error is logged: nothing vanishes unseen.
- nobody knows the recovery point: the end may be torn, but a bad batch with good ones behind it is refused.
"""

import itertools
from typing import NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import BatchHeader

from . import aborted, snapshots, truncation
from .config import LogConfig
from .finding import headers_of, is_whole
from .hints import LogHint
from .log import Log
from .metadata_file import mend_topic_id
from .names import EPOCHS, LOG, PRODUCERS, SEGMENT_FILES, TXNINDEX, file_name, split
from .rolling import write_index_files
from .scan import Bad, Checked, scan
from .segment import Segment
from .segment_files import cut_again, read_if_there, remove_all, remove_if_there
from .shared import Shared
from .start_epochs import StartEpochs
from .swap import tidy_folder
from .torn import cut_off, doubt
from .txn_index import AbortedIndex, IndexDamaged
from .walk import HOW_TO_MEND, damaged


class Known(NamedTuple):
    """What the checkpoint and the boot id tell. `recovery_point` None: the checkpoint is lost."""

    recovery_point: int | None
    log_start_offset: int
    same_boot: bool
    high_watermark: int = 0


def from_hint(
    shared: Shared,
    folder: str,
    config: LogConfig,
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    hint: LogHint,
) -> Log:
    """Nothing is touched; what the hint says is checked when a file is first opened."""
    now_ms = shared.env.clock.now_ms()
    interval = config.index_interval_bytes
    segments = []
    for at, known in enumerate(hint.segments):
        is_last = at + 1 == len(hint.segments)
        end = hint.log_end_offset if is_last else hint.segments[at + 1].base_offset
        segment = Segment(
            shared.pool, folder, known.base_offset, interval=interval, next_offset=end,
            size=known.size, created_ms=now_ms, fresh=known.size == 0,
        )  # fmt: skip
        segment.max_timestamp, segment.offset_of_max = known.max_timestamp, known.offset_of_max
        segment.first_timestamp = known.first_timestamp
        segment.aborted = None if known.has_aborted else AbortedIndex()
        if not is_last:
            segment.mark_sealed()
        segments.append(segment)
    if not segments:
        base = hint.log_end_offset
        segments.append(Segment(shared.pool, folder, base, interval=interval, fresh=True))
        segments[0].created_ms = now_ms
    log = Log(shared, folder, config, topic_partition, topic_id, segments, hint.log_start_offset)
    log.hint = hint._replace(segments=[], epochs=[], snapshots=[])  # the rest is for the producers
    log.created = bool(hint.segments)
    log.epochs.epochs = [epoch for epoch, _ in hint.epochs]
    log.epochs.starts = [start for _, start in hint.epochs]
    log.latest_epoch = log.epochs.latest
    log.snapshots = list(hint.snapshots)
    return log


def recover(
    shared: Shared,
    folder: str,
    config: LogConfig,
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    known: Known,
) -> Log:
    """After anything but a clean stop. LogDamaged: it is not safe to go on, and nothing was changed."""
    disk = shared.env.disk
    names = tidy_folder(disk, folder)
    if topic_id is not None and names:
        mend_topic_id(shared.env, folder, topic_id, is_new=not known.recovery_point)
    bases = sorted(base for name in names if (base := _base_of_log(name)) is not None)
    segments = [
        Segment(shared.pool, folder, base, interval=config.index_interval_bytes,
                size=disk.size(f"{folder}/{file_name(base, LOG)}"),
                created_ms=shared.env.clock.now_ms())
        for base in bases
    ]  # fmt: skip
    for segment, following in itertools.pairwise(segments):
        segment.next_offset = following.base_offset
        segment.mark_sealed()
    if not segments:
        return _empty(shared, folder, config, topic_partition, topic_id, known, names)
    log = Log(shared, folder, config, topic_partition, topic_id, segments, known.log_start_offset)
    log.log_start_offset = max(known.log_start_offset, bases[0])
    log.committed = known.high_watermark
    log.folder_version = 1  # what was made before the crash may not be durable yet
    for name in names:
        parts = split(name)
        if parts and parts[1] in SEGMENT_FILES and parts[0] not in bases:
            remove_if_there(disk, f"{folder}/{name}")
    recovery = _Recovery(log, known, names)
    try:
        recovery.run()
    except (LogDamaged, OSError):
        recovery.machine.reset(0)  # gives back its share of the budget
        # Nothing of this attempt may reach a checkpoint: it may not be durable.
        shared.unsettled.pop(log, None)
        log.close(clean=False)
        raise
    return log


def _base_of_log(name: str) -> int | None:
    parts = split(name)
    return parts[0] if parts and parts[1] == LOG else None


def _empty(
    shared: Shared,
    folder: str,
    config: LogConfig,
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    known: Known,
    names: list[str],
) -> Log:
    """No log file at all: never written, or all of it gone."""
    start = known.log_start_offset
    if (known.recovery_point or 0) > start:
        raise LogDamaged(
            f"{folder} holds no log, and with it offsets {start} to {(known.recovery_point or 0) - 1} are gone."
            f" {HOW_TO_MEND}"
        )
    segment = Segment(
        shared.pool, folder, start, interval=config.index_interval_bytes, fresh=True,
        created_ms=shared.env.clock.now_ms(),
    )  # fmt: skip
    log = Log(shared, folder, config, topic_partition, topic_id, [segment], start)
    log.created = bool(names)
    for name in names:
        if name.endswith(PRODUCERS) or name == EPOCHS:
            shared.env.disk.remove(f"{folder}/{name}")
    log.hint = LogHint(b"", start, start, [], [], -1, [], -1, b"")  # nobody has written yet
    return log


class _Recovery:
    """One log's way back. The fields are what is carried from segment to segment."""

    def __init__(self, log: Log, known: Known, names: list[str]) -> None:
        self.log = log
        self.known = known
        self.names = names
        self.trusted = known.recovery_point or 0  # below this everything was synced and settled
        self.now_ms = log.shared.clock.now_ms()
        self.machine = snapshots.new_machine(log)
        self.replay_from = 0
        self.was_cut = False
        self.epochs = StartEpochs(log, self.trusted, same_boot=known.same_boot)
        self.recovered_bytes = 0
        self.without_aborted: list[Segment] = []  # their index of aborted transactions was damaged
        # From where on it may not be synced. Where the checkpoint is lost that is anywhere: as a rule in the last two files.
        self.unsynced_from = self.trusted
        if known.recovery_point is None:
            self.unsynced_from = log.segments[-2:][0].base_offset

    def run(self) -> None:
        log, trusted = self.log, self.trusted
        self._load_snapshots()
        self._drop_deleted()
        # With the last trusted offset: its segment may have been sealed since, its indexes not synced.
        first = log.index_of(trusted - 1)
        self._load_aborted(first)
        self.epochs.load(first)
        self._replay_below(first)
        at = first
        while at < len(log.segments):
            segment = log.segments[at]
            if segment is log.active:
                snapshots.make_up(log, segment.base_offset, self.machine)
            try:
                self._check_segment(segment, at)
            except Bad as bad:
                cut_off(log, at, bad, self.known)
                self.was_cut = True
            at += 1
        end = log.active.next_offset
        if end < trusted:
            path = log.active.path
            why = f"the file ends here, but the log was synced up to offset {trusted}"
            raise damaged(path, log.active.size, end, why)
        self._finish(first, end)

    def _load_snapshots(self) -> None:
        """None above the recovery point is believed: it may be of a history that was truncated. A truncation to just where the log
        starts has lowered it by one, and cut nothing below."""
        log = self.log
        believed = max(self.trusted, min(self.known.log_start_offset, self.trusted + 1))
        found = sorted(
            parts[0]
            for name in self.names
            if (parts := split(name)) is not None and parts[1] == PRODUCERS
        )
        log.snapshots = [offset for offset in found if offset <= believed]
        for offset in found:
            if offset > believed:
                remove_if_there(log.env.disk, snapshots.path_of(log, offset))
        snapshots.load_newest(log, self.machine)
        if not self.known.same_boot:
            snapshots.drop_damaged(log)
        # The process that wrote them may have come no further, on this boot or (it is written down late) on one that seems another.
        log.snapshots_unsynced = log.snapshots[:]

    def _drop_deleted(self) -> None:
        """Segments that are out of the log stay as far as they reach to it without a hole: they may be all that tells who has written.
        The snapshot that is to stand for them may be in the page cache only. Retention takes them once a checkpoint has synced it."""
        log, machine = self.log, self.machine
        at = log.index_of(self.known.log_start_offset)
        while at and is_whole(log.segments[at - 1]):
            at -= 1
        for segment in log.segments[:at]:
            log.shared.pool.close(segment)
            remove_all(log.env.disk, log.folder, segment.base_offset, "")
        del log.segments[:at], log.bases[:at]
        if machine.end_offset < log.bases[0]:
            machine.reset(log.bases[0])  # better to know nobody than what was true before a hole
        else:
            snapshots.make_up_the_last_rolls(log, self.now_ms)
        self.replay_from = machine.end_offset

    def _load_aborted(self, first: int) -> None:
        """Entries above the recovery point may be missing or too many: the check derives them again."""
        log = self.log
        for segment in log.segments[first:]:
            data = read_if_there(log.env.disk, segment.path_of(TXNINDEX))
            try:
                segment.aborted = AbortedIndex.parse(data or b"", base_offset=segment.base_offset)
            except IndexDamaged as error:
                path = segment.path_of(TXNINDEX)
                log.env.log.warn("transaction_index_damaged", path=path, cause=str(error))
                segment.aborted = AbortedIndex()
                self.without_aborted.append(segment)
            segment.aborted.cut(self.trusted)
            # Else the file keeps what may never come back: it may have been cut in the page cache only.
            if data is not None:
                segment.aborted.unsure = True
                aborted.mark(log, segment)

    def _replay_below(self, first: int) -> None:
        """Producer state from the snapshot up to the segment that is checked batch by batch."""
        for segment in self.log.segments[self.log.index_of(self.replay_from) : first]:
            for position, header in headers_of(segment, self.replay_from):
                snapshots.replay(self.machine, segment, position, header, self.now_ms)
                self.log.bytes_since_snapshot += header.size

    def _check_segment(self, segment: Segment, at: int) -> None:
        """Raises Bad, with all before it taken in."""
        log = self.log
        file = segment.file()
        position = 0
        if self.known.same_boot:
            position = segment.resume_indexes(min(self.trusted, self.replay_from))
        else:
            segment.start_indexes()
        offset = segment.base_offset
        last: tuple[BatchHeader, int] | None = None  # and where it should begin
        for checked in scan(file, position, segment.size, offset):
            self._take(segment, checked)
            last = checked.header, offset
            offset = checked.header.next_offset
        if at + 1 < len(log.segments):
            following = log.segments[at + 1].base_offset
            # Compaction, too, ends a segment where the next one begins; only huge gaps are left open (`rolling.roll`).
            if following != offset and following - offset < 2**31:
                why = f"the next file starts at offset {following}"
                raise Bad(segment.size, offset, why, short=False)
        else:
            segment.next_offset = offset
            if last is not None:
                self._look_at_last(segment, *last)

    def _look_at_last(self, segment: Segment, header: BatchHeader, offset: int) -> None:
        """No checksum covers its offset, and no batch behind it belies it. A follower of a compacted log may have it right: it is not in sync
        then, as a rule, and loses nothing."""
        base = header.base_offset
        if base > offset and base >= self.unsynced_from and not self.known.same_boot:
            self.log.env.log.warn("offset_is_doubted", path=segment.path, offset=base, after=offset)
            doubt(self.log)

    def _take(self, segment: Segment, checked: Checked) -> None:
        log, header = self.log, checked.header
        segment.note(header, checked.position)
        if header.base_offset >= self.trusted:
            self.recovered_bytes += header.size
        self.epochs.note(header)
        if header.base_offset >= self.unsynced_from:
            # After a failed sync the kernel holds pages for clean that are not on the disk, and a later sync passes them
            # over. The process that saw it fail may be the one that was killed: what it wrote is written again.
            segment.file().write_at(checked.position, checked.batch)
        if header.last_offset < self.replay_from:
            return
        log.bytes_since_snapshot += header.size
        marker = None
        if header.is_control and header.record_count:
            marker = snapshots.read_marker(checked.batch, header)
        completed = self.machine.apply(
            header, header.base_offset, header.last_offset, now_ms=self.now_ms, marker=marker
        )
        if completed is None or not completed.aborted:
            return
        if completed.last_offset >= self.trusted:
            aborted.add(log, segment, completed)

    def _sync(self, first: int) -> None:
        """What the last process wrote, or cut off, may be in the page cache only; it counts from now on."""
        log = self.log
        cut_again(log.active.file())
        for segment in log.segments[first:]:
            segment.file().sync()
        log.env.disk.sync_folder(log.folder)
        if not self.trusted:  # the folder itself may be new
            log.env.disk.sync_folder(log.folder.rpartition("/")[0])
        log.folder_synced = log.folder_version

    def _finish(self, first: int, end: int) -> None:
        log = self.log
        log.log_end_offset = end
        log.size_bytes = sum(segment.size for segment in log.segments)
        log.settled_point = min(self.trusted, end)
        log.recovery_point = end
        log.producers = self.machine
        self.machine.end_offset = end
        for segment in log.segments[first:]:
            if segment.sealed:
                segment.seal()
                write_index_files(log, segment)
                log.rolled.append(segment)
        log.active.reset_tail()
        if end > self.trusted or self.was_cut or not self.trusted:
            self._sync(first)
        aborted.derive_anew(log, self.without_aborted)
        self.epochs.finish(end)
        log.unsettled()
        snapshots.make_up(log, end, self.machine)
        if end < log.log_start_offset:  # all that was left had been deleted already
            start = log.log_start_offset
            truncation.truncate_fully_and_start_at(log, start)
        log.shared.recovered.logs += bool(self.recovered_bytes or self.was_cut)
        log.shared.recovered.records_bytes += self.recovered_bytes
        # Most logs had nothing that was not synced: no more than a line for all of them (`last_run_unclean`).
        say = log.env.log.info if self.recovered_bytes or self.was_cut else log.env.log.debug
        say(
            "log_recovered",
            partition=str(log.topic_partition),
            bytes=self.recovered_bytes,
            checked_from=log.segments[first].base_offset if first < len(log.segments) else end,
            log_end_offset=log.log_end_offset,
        )
