"""The same partition towards the other nodes that have it: as a follower it takes, as a leader it is acknowledged.

INVARIANT  a follower's log holds whole batches with the leader's offsets and epochs, checked, each behind the one before;
           it appends and is cut only while it follows, in the epoch that the batches were sent in.
PREVENTS   a replica that differs from its leader below the high watermark; a deposed leader writing here.
PROVED BY  tests/replication/test_partition_copies.py::test_a_follower_takes_nothing_of_another_epoch
"""

from typing import Final, Protocol
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ports import Buffer, Env
from fencepost.cluster.metadata.config_def import LONG_MAX
from fencepost.cluster.metadata.topic_config import TopicConfig

from . import appends
from .divergence_machine import Cut
from .flusher import LATER_MS_MAX, Flushable, Flusher
from .log import handed_on
from .log.log import PASSING, Log
from .log.settle import durable_point
from .metrics import Counters
from .partition_machine import PartitionMachine, Role
from .partition_reads import ReadablePartition
from .waits import OffsetWaits

AT_ONCE: Final = -1
INTERVAL_MS: Final = 1_000  # flush.policy=interval, unless flush.ms is set
# Until producers are read again for which there was no descriptor, or no memory.
HISTORY_AGAIN_S: Final = 1.0


class Owner(Protocol):
    """What a partition tells the manager."""

    def on_high_watermark(self, partition: "CopiedPartition") -> None: ...

    def on_write(self, partition: "CopiedPartition", error: OSError | None) -> None: ...

    def on_offline(self, partition: "CopiedPartition", reason: str) -> None: ...

    def on_log_start(self, partition: "CopiedPartition") -> None:
        """It is to be durable soon; `on_start_durable` says when."""


class Feed(Protocol):
    """The leader's side of one follower of one partition."""

    def on_append(self) -> None: ...

    def on_moved(self) -> None:
        """The high watermark, or where the log starts."""


class Copying(Protocol):
    """The follower's side, towards its leader."""

    def on_durable(self) -> None:
        """More of the log is synced."""

    def on_closed(self) -> None:
        """The partition takes nothing any more."""


class CopiedPartition(ReadablePartition, Flushable):
    __slots__ = (
        "_copying", "_deletions", "_durable_start", "_feeds", "_flush_delay_ms", "_flush_messages", "_flusher", "_owner",
        "_syncs_first", "_tells_again", "_unsynced_records",
    )  # fmt: skip

    def __init__(
        self,
        env: Env,
        topic_id: UUID,
        log: Log,
        config: TopicConfig,
        machine: PartitionMachine,
        counters: Counters,
        flusher: Flusher,
        owner: Owner,
    ) -> None:
        super().__init__(env, topic_id, log, config, machine, counters)
        self._flusher = flusher
        self._owner = owner
        self._unsynced_records = 0
        self._flush_messages = config.flush_messages
        self._flush_delay_ms = flush_delay_ms(config)
        self._syncs_first = False
        self._tells_again = False
        self._feeds: tuple[Feed, ...] = ()
        self._copying: Copying | None = None
        self._deletions: OffsetWaits | None = None
        self._durable_start = log.log_start_offset

    @property
    def counted_log_start(self) -> int:
        """What counts of where the log starts: what the disk has of it, whatever flush.policy says: a kill leaves what was written, and
        would bring back what was deleted."""
        log = self.log
        if log.is_start_durable:
            self._durable_start = log.log_start_offset
        else:  # others may move it on before each checkpoint ends
            told = min(log.start_on_disk, log.log_start_offset)
            self._durable_start = max(self._durable_start, told)
        return self._durable_start

    def _steady_ms(self) -> int:
        """For whoever measures a lag: the wall clock may jump."""
        return int(self._env.clock.steady() * 1000)

    @property
    def sync_counts(self) -> bool:
        return self.machine.sync_counts

    # -- as a leader -----------------------------------------------------------------------------------

    def add_feed(self, feed: Feed) -> None:
        self._feeds = (*self._feeds, feed)

    def drop_feed(self, feed: Feed) -> None:
        self._feeds = tuple(each for each in self._feeds if each is not feed)

    def on_ack(
        self, broker_id: int, log_end: int, counted_end: int, log_start: int, *, may_join: bool
    ) -> None:
        """A follower tells what it has."""
        replica = self.machine.replicas.get(broker_id)
        deleted = replica is not None and replica.log_start != log_start
        if replica is not None:
            replica.log_start = log_start
        if self.machine.on_ack(
            broker_id,
            log_end=log_end,
            counted_end=counted_end,
            may_join=may_join,
            now_ms=self._steady_ms(),
        ):
            self._high_watermark_moved()
        if deleted:
            self._maybe_deleted()

    def on_may_join(self, broker_id: int, *, may_join: bool) -> None:
        """The metadata log, or the end of its stream, says something new of a follower."""
        replica = self.machine.replicas.get(broker_id)
        if replica is None or replica.may_join is may_join:
            return
        if self.machine.on_may_join(broker_id, self._steady_ms(), may_join=may_join):
            self._high_watermark_moved()
        self._maybe_deleted()

    async def deleted(self, offset: int) -> ErrorCode:
        """`none` once no replica that is alive has anything before `offset`: it won't come back with a leader.

        Nor, under flush.policy=ack, when all of them lose their power.
        """
        if not self.is_leader:
            return self.closed or ErrorCode.not_leader_or_follower
        if self._low_watermark() >= offset:
            return ErrorCode.none
        if self._deletions is None:
            self._deletions = OffsetWaits()
        return await self._deletions.wait(offset - 1)

    def _low_watermark(self) -> int:
        log_start = self.counted_log_start
        return min(log_start, self.machine.low_watermark(log_start))

    def _maybe_deleted(self) -> None:
        if self._deletions is not None:
            self._deletions.release(self._low_watermark(), ErrorCode.none)

    # -- as a follower ---------------------------------------------------------------------------------

    def follows(self, leader_epoch: int) -> bool:
        machine = self.machine
        return (
            self.closed is None
            and self.log.failed is None  # it copies nothing until it is opened anew
            and machine.role is Role.FOLLOWER
            and machine.leader_epoch == leader_epoch
        )

    def copy_to(self, copying: Copying | None) -> None:
        """Who is told of syncs from now on."""
        self._copying = copying

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> None:
        """Write what the leader has at our end. BatchRefused: it can't follow what is here. OSError: the disk."""
        assert self.follows(leader_epoch)
        log = self.log
        headers = appends.check_copied(records, epoch_min=log.latest_epoch, epoch_max=leader_epoch)
        first = headers[0][1].base_offset
        if first < log.log_end_offset:
            self._begin_inside(headers)
        try:
            log.append(records, headers, self._env.clock.now_ms())
        except OSError as failed:
            self._maybe_taken_back()
            self._owner.on_write(self, failed)
            if log.failed is not None:
                self._tell_readers(at_once=True)
            raise
        self._owner.on_write(self, None)
        self._written(headers, len(records))

    def take_producers(self, snapshot: bytes) -> None:
        """Who wrote what the leader has deleted. SnapshotDamaged: that is not what it is. OSError: the disk."""
        handed_on.take(self.log, snapshot)

    def _maybe_taken_back(self) -> None:
        """What was written in part was cut off again, and a sync under way says nothing of the log any more, as behind `cut`."""
        if self.log.cut_unsynced:
            self._to_be_synced()

    def _begin_inside(self, headers: appends.Headers) -> None:
        """DeleteRecords may begin a log inside a batch, and batches come whole: begin where that batch does."""
        log = self.log
        header = headers[0][1]
        end = log.log_end_offset
        if log.log_start_offset != end or header.last_offset < end:
            raise appends.not_next(header, end)
        handed = handed_on.below(log.producers.copied(), header.base_offset)
        self.cut(Cut(header.base_offset, anew=True))
        if handed:
            handed_on.take(log, handed)

    def follow_leader(self, high_watermark: int, log_start: int) -> bool:
        """How far the leader has committed, and what it has deleted; whether we delete it, too."""
        log = self.log
        before = log.log_start_offset
        moved = self.machine.on_leader_high_watermark(high_watermark)
        if log_start > before:
            log.delete_records_before(min(log_start, self.machine.high_watermark))
            self.on_log_start_moved()
        if moved:
            self._high_watermark_moved()
        return log.log_start_offset > before

    def cut(self, cut: Cut) -> None:
        """The leader has another history from here on, or no longer has what would follow.

        Where it goes wrong half-way nobody is told anything of this log any more: not an end that it has not.
        """
        log = self.log
        start = log.log_start_offset
        before, committed = log.log_end_offset, self.machine.high_watermark
        if not cut.anew and cut.offset < log.cleaned_to:
            # What goes has superseded values that the leader has, and they are not here any more. Only an election that lost
            # data cuts what was committed, and nothing else is cleaned.
            cut = Cut(start, anew=True)
        try:
            if cut.anew:
                log.truncate_fully_and_start_at(cut.offset)
            else:
                log.truncate_to(cut.offset)
        except (OSError, LogDamaged) as failed:
            if log.failed is not None:
                self.on_log_failed(f"a truncation failed half-way: {failed}")
            raise
        self._counters.truncations += 1
        self._durable_start = min(self._durable_start, log.log_start_offset)
        # A sync that was under way says nothing of this log any more, and its leader may wait for the rest of it.
        self._to_be_synced()
        if log.log_start_offset != start:
            self.on_log_start_moved()
        if cut.anew:
            self.machine.on_begun_anew(cut.offset)
        else:
            self.machine.on_truncated(log.log_end_offset, log.recovery_point)
            # They were made anew from the log, and take every ended transaction for one that may still be cut.
            log.producers.on_high_watermark(self.machine.high_watermark)
        log.committed = self.machine.high_watermark
        say = self._env.log.info
        if max(start, log.log_end_offset) < committed:  # only who gave data up can bring this about
            say = self._env.log.error
        say(
            "truncated", partition=str(self.topic_partition), from_offset=before,
            to_offset=log.log_end_offset, high_watermark=committed, anew=cut.anew,
        )  # fmt: skip
        self._owner.on_high_watermark(self)
        self._tell_readers(at_once=True)

    # -- both ------------------------------------------------------------------------------------------

    def on_log_failed(self, cause: str) -> None:
        """What ends with it, `Partition` knows."""

    def _written(self, headers: appends.Headers, size: int) -> None:
        counters = self._counters
        records = 0
        for _, header in headers:
            records += header.record_count
        counters.appended_batches += len(headers)
        counters.appended_records += records
        counters.appended_bytes += size
        self._unsynced_records += records
        self._to_be_synced()
        if self.machine.on_append(self.log.log_end_offset, self._steady_ms()):
            self._high_watermark_moved()
        for feed in self._feeds:
            feed.on_append()

    def sync_first(self, wanted: bool) -> None:
        """Nothing counts here that is not synced, whatever flush.policy says, for as long as that is wanted."""
        if self._syncs_first is not wanted:
            self._syncs_first = wanted
            self._set_flush_delay()

    def _set_flush_delay(self) -> None:
        """What waits to be synced does so from now on as if it had just been written; the leader hears what counts now."""
        delay_ms = AT_ONCE if self._syncs_first else flush_delay_ms(self.config)
        had, self._flush_delay_ms = self._flush_delay_ms, delay_ms
        self.machine.sync_counts = delay_ms == AT_ONCE
        if delay_ms == had or self.closed is not None:
            return
        if self.log.recovery_point < self.log.log_end_offset:
            self._flusher.forget(self)
            self._to_be_synced()
        if self._copying is not None:
            self._copying.on_durable()

    def _to_be_synced(self) -> None:
        if self._flush_delay_ms == AT_ONCE or self._unsynced_records >= self._flush_messages:
            self._flusher.soon(self)
        else:
            self._flusher.later(self, self._flush_delay_ms)

    def on_log_start_moved(self) -> None:
        super().on_log_start_moved()
        if self.log.log_start_offset > durable_point(self.log):
            self._flusher.soon(self)  # no checkpoint says where the log starts before that
        self._owner.on_log_start(self)
        self._maybe_deleted()
        for feed in self._feeds:
            feed.on_moved()

    def on_start_durable(self) -> None:
        self._maybe_deleted()
        if self._copying is not None:
            self._copying.on_durable()

    def _high_watermark_moved(self) -> None:
        self.log.committed = self.machine.high_watermark
        self._tell_producers()
        self._owner.on_high_watermark(self)
        self._tell_readers()
        for feed in self._feeds:
            feed.on_moved()

    def _tell_producers(self) -> None:
        """Whose transactions have ended for good. Where their history can't be read readers of committed records stay where they are,
        and whoever writes is told why; of the node's other partitions it is no concern."""
        unstable = self.log.first_unstable_offset
        if unstable is None or self.closed is not None:
            return
        try:
            self.log.producers.on_high_watermark(self.machine.high_watermark)
        except (OSError, LogDamaged) as failed:
            self._read_failed(failed, unstable)
            may_pass = isinstance(failed, OSError) and failed.errno in PASSING
            if may_pass and not self._tells_again:
                self._tells_again = True
                self._env.clock.call_later(HISTORY_AGAIN_S, self._tell_producers_again)

    def _tell_producers_again(self) -> None:
        self._tells_again = False
        self._tell_producers()
        self._tell_readers()


def flush_delay_ms(config: TopicConfig) -> int:
    """How long a write may stay unsynced. flush.ms holds under every policy that leaves something unsynced."""
    if config.flush_policy == "ack":
        return AT_ONCE
    if config.flush_policy == "interval":
        return INTERVAL_MS if config.flush_ms == LONG_MAX else config.flush_ms
    return min(config.flush_ms, LATER_MS_MAX)
