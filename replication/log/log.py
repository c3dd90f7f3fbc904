"""One partition's log: the batches, in order, and all that is derived from them.

INVARIANT  what `append` returned from is readable at its offsets, once, in order, until retention, DeleteRecords,
           compaction or truncation takes it away; an append that raises leaves nothing behind.
PREVENTS   an offset given twice, a hole, a batch that only memory knows of.
PROVED BY  tests/replication/log/test_log_model.py::test_the_log_answers_as_a_plain_list_does

Everything here is synchronous and runs on the loop. `recovery_point` is how far the log is known to be synced;
`settled_point`, at or below it, is how far the indexes, epochs and snapshots beside it are too, and that alone is
what the checkpoint may claim.
"""

import errno
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import NO_ROOM_ERRNOS, LogDamaged
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Buffer, Env, File
from fencepost.cluster.wire.batch import BatchHeader

from . import aborted, closing, compaction, retention, rolling, snapshots, truncation
from .burial import Burial
from .checkpoint import Kind
from .config import INT_MAX, LogConfig
from .damage import Damage, below, readable_until
from .epochs_machine import EpochsMachine
from .finding import ReadResult, headers_of, read
from .hints import LogHint
from .producers_machine import ProducersMachine
from .search import Found, Seek, first_at_or_after
from .segment import Segment
from .shared import Shared
from .snapshots import read_marker
from .sync import SyncTicket
from .txn_index import AbortedTxn
from .walk import damaged

# A write that failed for one of these may succeed later; after any other the log is not written again.
PASSING: Final = NO_ROOM_ERRNOS | {errno.ENOMEM, errno.EAGAIN}


class Log:
    """One partition's data. Made by `open`."""

    __slots__ = (
        "_producers", "aborted_unsynced", "bases", "begins", "burials", "bytes_since_snapshot", "cleaned_to", "cleaning",
        "committed", "config", "created", "cut_unsynced", "cuts", "damage", "dirty", "doomed", "env", "epochs", "epochs_unsaved", "extra_paths",
        "failed", "folder", "folder_synced", "folder_version", "hint", "latest_epoch", "log_end_offset", "log_start_offset",
        "names_lost", "point_on_disk", "recovery_point", "removed", "rolled", "segments", "settled_point", "shared", "size_bytes", "snapshot_lacks_room",
        "snapshots", "snapshots_unsynced", "start_on_disk", "ticket", "topic_id", "topic_partition", "unread", "unwritten_snapshot",
    )  # fmt: skip

    def __init__(
        self,
        shared: Shared,
        folder: str,
        config: LogConfig,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        segments: list[Segment],
        log_start_offset: int,
    ) -> None:
        self.shared = shared
        self.env = shared.env
        self.folder = folder
        self.config = config
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.log_start_offset = log_start_offset
        self.start_on_disk = -1  # as far as a checkpoint has said so, in this run
        self.log_end_offset = segments[-1].next_offset
        self.recovery_point = self.settled_point = self.log_end_offset
        self.point_on_disk = 0  # as far as a checkpoint has said so, and the next start goes by
        self.size_bytes = sum(segment.size for segment in segments)
        self.epochs = EpochsMachine()
        self.latest_epoch = -1
        self.failed: Exception | None = None
        self.removed = False  # deleted, or moved to other nodes
        self.created = not all(segment.fresh for segment in segments)  # the folder is there
        self.damage: tuple[Damage, ...] = ()  # what is known of it
        # From where to where nobody has read it since the start; only where a scrub is on its way.
        self.unread: tuple[int, int] | None = None
        self.cuts = 0  # truncations: what was planned before one is void
        self.begins = 0  # those that left nothing
        self.cut_unsynced = False  # the last truncation may come undone when the power goes
        self.dirty: list[Segment] = []
        self.extra_paths: list[str] = []  # files that were written once and not synced
        # Names made, renamed or removed in the folder, and how far that is durable.
        self.folder_version = self.folder_synced = 0
        self.names_lost = False  # the folder could not be synced: no later sync of it is believed
        self.ticket: SyncTicket | None = None
        self._producers: ProducersMachine | None = None
        self.hint: LogHint | None = None  # until the log is truncated
        self.snapshots: list[int] = []  # offsets of the snapshot files, rising
        self.bytes_since_snapshot = 0
        self.snapshot_lacks_room = False  # the last one found the disk full
        self.unwritten_snapshot: tuple[int, bytes] | None = None  # the last roll's, which did
        self.rolled: list[Segment] = []  # sealed, their indexes not synced
        self.aborted_unsynced: list[Segment] = []
        self.snapshots_unsynced: list[int] = []
        self.epochs_unsaved = False
        self.doomed: list[Segment] = []  # out of the log; out of the folder once that is durable
        self.burials: dict[int, Burial] = {}  # by the offset in the names of their files
        self.cleaned_to = -1  # compaction has been here; -1 is never
        self.cleaning = False
        # The high watermark, as far as told: no cut goes below it.
        self.committed = log_start_offset

    @classmethod
    def open(
        cls,
        env: Env,
        folder: str,
        config: LogConfig,
        *,
        topic_partition: TopicPartition,
        clean: bool,
        recovery_point: int | None,
        hint: LogHint | None,
        topic_id: UUID | None = None,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        same_boot: bool = False,
        shared: Shared | None = None,
    ) -> "Log":
        """LogDamaged names the file and the position. `recovery_point` None: nobody knows, check everything."""
        from . import recovery

        shared = shared or Shared.alone(env)
        if clean and hint is not None:
            return recovery.from_hint(shared, folder, config, topic_partition, topic_id, hint)
        return recovery.recover(
            shared,
            folder,
            config,
            topic_partition,
            topic_id,
            recovery.Known(recovery_point, max(log_start_offset, 0), same_boot, high_watermark),
        )

    # -- what others look at ---------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def producers(self) -> ProducersMachine:
        machine = self._producers
        if machine is None:
            machine = self._producers = snapshots.load_producers(self)
        return machine

    @producers.setter
    def producers(self, machine: ProducersMachine) -> None:
        self._producers = machine

    @property
    def producers_loaded(self) -> bool:
        return self._producers is not None

    @property
    def first_unstable_offset(self) -> int | None:
        if self._producers is not None:
            return self._producers.first_unstable_offset
        if self.hint is None:
            return self.producers.first_unstable_offset
        return None if self.hint.unstable < 0 else self.hint.unstable

    def __repr__(self) -> str:
        return f"<Log {self.topic_partition} {self.log_start_offset}..{self.log_end_offset}>"

    # -- append ----------------------------------------------------------------------------------------

    def append(
        self, buffer: Buffer, headers: Sequence[tuple[int, BatchHeader]], now_ms: int
    ) -> None:
        """Write whole batches, spliced and decided; OSError leaves the log as it was."""
        if self.failed is not None:
            raise OSError(errno.EIO, f"{self.topic_partition} had a write or a sync fail") from None
        first, last = headers[0][1], headers[-1][1]
        assert first.base_offset >= self.log_end_offset, "an offset would be given twice"
        producers = self.producers  # as they are before this: they may have to be loaded
        markers = {
            position: read_marker(memoryview(buffer)[position:], header)
            for position, header in headers
            if header.is_control
        }
        if markers:  # what an abort is added to: read before anything is written, for that may fail
            aborted.load(self, self.segments[-1])
        size = len(buffer)
        if len(headers) == 1:
            newest = first.max_timestamp
        else:
            newest = max(header.max_timestamp for _, header in headers)
            if size > self.config.segment_bytes:
                truncation.append_all_or_none(self, buffer, headers, now_ms)
                return
        active = self.segments[-1]
        last_offset = last.base_offset + last.last_offset_delta
        try:
            rolling.make_ready(self)
            if rolling.must_roll(self, active, size, last_offset, newest, now_ms):
                active = rolling.roll(self, now_ms, first.base_offset, last_offset)
            if active.fresh:  # its file will be there whether or not the write succeeds
                self.folder_version += 1
            active.append(buffer, headers)
        except OSError as error:
            if active.dirty:
                self.mark_dirty(active)
            if error.errno not in PASSING:
                self.fail(error)
            raise
        except LogDamaged as damage:
            failure = OSError(errno.EIO, str(damage))
            self.fail(failure)
            raise failure from damage
        self.mark_dirty(active)
        self.size_bytes += size
        self.bytes_since_snapshot += size
        self.log_end_offset = active.next_offset
        seen_ms = self.shared.clock.now_ms()
        for position, header in headers:
            if header.leader_epoch > self.latest_epoch:
                self.assign_epoch(header.leader_epoch, header.base_offset)
            completed = producers.apply(
                header,
                header.base_offset,
                header.base_offset + header.last_offset_delta,
                now_ms=seen_ms,
                marker=markers.get(position) if markers else None,
            )
            if completed is not None and completed.aborted:
                aborted.add(self, active, completed)

    def mark_dirty(self, segment: Segment) -> None:
        """The next sync takes it in."""
        if segment not in self.dirty:
            self.dirty.append(segment)

    def want_sync(self, segment: Segment) -> None:
        """The next sync takes it in, though all up to its size is synced."""
        segment.want_sync()
        self.mark_dirty(segment)

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and start another at the log's end."""
        return rolling.roll(self, now_ms)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """The first batch of a leader epoch is at `start_offset` (or will be)."""
        if leader_epoch >= 0:
            if self.epochs.assign(leader_epoch, start_offset):
                self.epochs_unsaved = True
                self.unsettled()
            self.latest_epoch = self.epochs.latest

    def fail(self, error: Exception) -> None:
        """Nothing is written until the log is opened anew: what the kernel has of it can't be told."""
        if self.failed is None:
            self.failed = error
            name = str(self.topic_partition)
            cause = str(error) or repr(error)
            self.env.log.error("log_failed", partition=name, cause=cause)
            self.shared.on_failed(self.topic_partition)

    # -- reading ---------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, limit: int, min_one: bool, block: bool = True
    ) -> ReadResult | None:
        """Whole batches from the one that holds `offset` on, all of them below `limit` (exclusive).

        None: the offset is not in the log. With `block` false it raises Cold rather than wait for the disk.
        LogDamaged: what should be there is not.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return None
        if offset >= limit:
            return ReadResult([], 0, offset, offset)
        if self.damage:
            limit = readable_until(self.damage, offset, limit)
        for segment in self.segments[self.index_of(offset) :]:
            found = read(segment, offset, max_bytes, limit=limit, min_one=min_one, block=block)
            if found is not None:
                return found
            self._check_gap(segment, offset)
        return ReadResult([], 0, offset, offset)

    def index_of(self, offset: int) -> int:
        """Of the segment whose base offset is the last at or below `offset`."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def _check_gap(self, segment: Segment, offset: int) -> None:
        """Every segment begins where the one before it ends; only Kafka's own cleaner leaves gaps."""
        at = bisect_right(self.bases, segment.base_offset)
        if at == len(self.bases) or offset >= self.bases[at] or self.config.compact:
            return
        if (
            self.bases[at] - segment.base_offset <= INT_MAX
        ):  # or it is a gap that `roll` has to leave
            why = f"the next file starts at offset {self.bases[at]}"
            raise damaged(segment.path, segment.size, offset, why)

    def headers_from(self, offset: int, limit: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """Segment, position and header of every batch that reaches into [offset, limit); blocks."""
        for segment in self.segments[self.index_of(offset) :]:
            if segment.base_offset >= limit:
                return
            for position, header in headers_of(segment, offset):
                if header.base_offset >= limit:
                    return
                yield segment, position, header

    def search(self, seek: Seek, limit: int, *, block: bool = True) -> Found | None:
        """For a timestamp, below `limit`. Cold as with `read`, here and below."""
        return first_at_or_after(self, seek, limit, block=block)

    def aborted_between(self, first: int, last: int, *, block: bool = True) -> list[AbortedTxn]:
        """Aborted transactions with records in [first, last)."""
        return aborted.between(self, first, last, block=block)

    # -- taking away -----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """End before `offset` at the latest: a batch that holds it goes whole."""
        truncation.truncate_to(self, offset)
        self.damage = below(self.damage, self.log_end_offset)
        if self.unread is not None:
            self.unread = self.unread[0], min(self.unread[1], self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.damage, self.unread = (), None
        truncation.truncate_fully_and_start_at(self, offset)

    def delete_records_before(self, offset: int) -> None:
        retention.advance_start(self, offset)

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        return retention.apply(self, now_ms, high_watermark)

    def dirt(self, now_ms: int, last_stable_offset: int) -> "compaction.Dirt | None":
        """What compaction would find to do, and whether it is due; None for nothing."""
        return compaction.dirt(self, now_ms, last_stable_offset)

    async def compact(
        self,
        now_ms: int,
        last_stable_offset: int,
        *,
        force: bool = False,
        forgets: Callable[[], bool] = lambda: True,
        is_heard: Callable[[], Awaitable[bool]] = compaction.always,
    ) -> "compaction.CompactionStats":
        """One round of compaction, when it is due (or `force`). `forgets`: whether tombstones and markers go whose time is over."""
        return await compaction.compact(
            self, now_ms, last_stable_offset, force=force, forgets=forgets, is_heard=is_heard
        )

    # -- durability ------------------------------------------------------------------------------------

    def unsettled(self) -> None:
        """The next checkpoint has something to do here. Not of a removed log: its folder may be another's by now."""
        if not self.removed:
            self.shared.unsettled[self] = None

    def dirty_files(self) -> list[File]:
        """What must be synced for all that was appended so far to be durable (but see sync.py for folders)."""
        self.ticket = SyncTicket(self)
        return self.ticket.files

    def mark_synced(self, offset: int) -> None:
        """What `dirty_files` named has been synced."""
        ticket, self.ticket = self.ticket, None
        assert ticket is not None and offset <= ticket.end_offset
        ticket.done()

    def put(self, kind: Kind, offset: int) -> None:
        # A checkpoint that had begun must claim nothing of a log that went meanwhile.
        if self.shared.offsets is not None and not self.removed:
            self.shared.offsets.put(kind, self.topic_partition, offset)

    @property
    def is_start_durable(self) -> bool:
        """Whether a crash leaves the log to begin where it does, and not further back."""
        offsets, mine = self.shared.offsets, (Kind.LOG_START, self.topic_partition)
        return offsets is None or offsets.is_durable(*mine, self.log_start_offset)

    def lower(self, kind: Kind, offset: int) -> None:
        if self.shared.offsets is not None:
            self.shared.offsets.lower(kind, {self.topic_partition: offset})

    def close(self, *, clean: bool) -> LogHint | None:
        """Let go of the files. When `clean`, all was synced before, and the answer is what to start from."""
        return closing.close(self, clean=clean)
