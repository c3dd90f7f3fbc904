"""One partition on this broker, as those who read it see it.

INVARIANT  nothing at or above the high watermark is shown, nor to read_committed at or above the last stable offset.
PREVENTS   a consumer acting on a record that a new leader never had, or on one of an aborted transaction.
PROVED BY  tests/replication/test_partition.py::test_nothing_is_read_before_it_is_committed
"""

from typing import Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import BrokerId, Offset, TopicPartition
from fencepost.cluster.base.ports import Buffer, Chunk, Env, FileSlice
from fencepost.cluster.metadata.topic_config import TopicConfig
from fencepost.cluster.wire.batch import BatchRefused

from .appends import Refusal
from .first_reads import FirstReads, NotAsWritten
from .log.damage import KnownDamage
from .log.finding import ReadResult
from .log.log import Log
from .log.producer_snapshot import ProducerState
from .log.producers_machine import ProducersMachine
from .log.search import Heavy, Seek
from .log.walk import Cold
from .metrics import Counters
from .partition_machine import NO_EPOCH, PartitionMachine, Role
from .waits import ENOUGH, FetchWait, worth

READ_COMMITTED: Final = 1
LATEST, EARLIEST, EARLIEST_LOCAL = (
    -1,
    -2,
    -4,
)  # ListOffsets' special timestamps, beside MAX_TIMESTAMP
# Pieces brought into memory for one read before it just blocks, and one more a segment.
COLD_READS_MAX: Final = 16


class Read(NamedTuple):
    """Whole batches, the first of which holds the offset, and how far the partition is."""

    records: list[Chunk]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None  # (producer id, first offset), for read_committed only
    diverging: tuple[int, int] | None = (
        None  # (epoch, end offset) where the reader's history left ours
    )
    worth: int = 0  # where it is weighed whether to wait for more


class ReadablePartition:
    """`Partition` (partition.py) is the only one; it adds all that changes something."""

    __slots__ = (
        "_counters", "_env", "_first_reads", "_of_topic", "_readers", "closed", "config", "log", "machine", "topic_id",
        "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        env: Env,
        topic_id: UUID,
        log: Log,
        config: TopicConfig,
        machine: PartitionMachine,
        counters: Counters,
    ) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.config = config
        self.machine = machine
        self.closed: ErrorCode | None = None  # what everyone is told from now on
        self._env = env
        self._counters = counters
        self._of_topic = counters.of_topic(log.topic_partition.topic)
        self._readers: dict[FetchWait, None] | None = None
        self._first_reads: FirstReads | None = None

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.machine.role.value}>"

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.machine.role is Role.LEADER

    @property
    def leader_epoch(self) -> int:
        return self.machine.leader_epoch

    @property
    def high_watermark(self) -> int:
        return self.machine.high_watermark

    @property
    def last_stable_offset(self) -> int:
        unstable = self.log.first_unstable_offset
        if unstable is not None:
            unstable = max(unstable, self.log.log_start_offset)
        return self.machine.last_stable_offset(unstable)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def producers(self) -> ProducersMachine:
        return self.log.producers

    # -- reading ---------------------------------------------------------------------------------------

    def check_leader_epoch(self, leader_epoch: int) -> ErrorCode:
        return self.closed or self.machine.check_leader_epoch(leader_epoch)

    def _why_not_read(self, current_leader_epoch: int, *, leader_only: bool = True) -> ErrorCode:
        error = self.check_leader_epoch(current_leader_epoch)
        if error is not ErrorCode.none:
            return error
        role = self.machine.role
        if role is Role.LEADER:
            return error
        if role is not Role.FOLLOWER or leader_only:
            return ErrorCode.not_leader_or_follower
        # It copies nothing more: who read on here would wait for commits that it never hears of.
        return error if self.log.failed is None else ErrorCode.kafka_storage_error

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: int,
        min_one: bool,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        leader_only: bool = True,
        block: bool = True,
    ) -> Read | Refusal:
        """What is committed from `offset` on. With `block` false it raises Cold where the disk must be waited for.

        `leader_only` false (KIP-392: a consumer that named its rack) reads from a follower, too, as far as it knows
        of commits.
        """
        error = self._why_not_read(current_leader_epoch, leader_only=leader_only)
        if error is not ErrorCode.none:
            return Refusal(error)
        log = self.log
        high_watermark, stable = self.machine.high_watermark, self.last_stable_offset
        aborted: list[tuple[int, int]] | None = [] if isolation == READ_COMMITTED else None
        if last_fetched_epoch != NO_EPOCH:
            epoch, end = self.end_offset_for(last_fetched_epoch)
            if end < 0 or epoch < 0 or offset < log.log_start_offset:
                return Refusal(ErrorCode.offset_out_of_range)
            if epoch < last_fetched_epoch or end < offset:
                return Read(
                    [], 0, high_watermark, stable, log.log_start_offset, aborted, (epoch, end)
                )
        limit = stable if isolation == READ_COMMITTED else high_watermark
        try:
            found = log.read(offset, max_bytes, limit=limit, min_one=min_one, block=block)
            if found is None:
                return Refusal(ErrorCode.offset_out_of_range)
            if log.unread is not None:
                self._check_first(found, block=block)
            if aborted is not None and found.size:
                aborted = [
                    (txn.producer_id, txn.first_offset)
                    for txn in log.aborted_between(offset, found.next_offset, block=block)
                ]
        except KnownDamage as known:
            return Refusal(self._damage_code(), str(known))
        except NotAsWritten as suspicion:  # the scrub says what it is
            return Refusal(ErrorCode.kafka_storage_error, str(suspicion))
        except (OSError, LogDamaged) as failed:
            return self._read_failed(failed, offset)
        self._counters.reads += 1
        self._counters.read_bytes += found.size
        self._of_topic.read_bytes += found.size
        weight = worth(log, found, offset, limit, max_bytes, min_one=min_one)
        return Read(
            found.slices, found.size, high_watermark, stable, log.log_start_offset, aborted, worth=weight
        )  # fmt: skip

    def _check_first(self, found: ReadResult, *, block: bool) -> None:
        if self._first_reads is None:
            self._first_reads = FirstReads()
        self._first_reads.check(self.log, found, block=block)

    @property
    def is_last_copy(self) -> bool:
        """Nobody else is in sync."""
        machine = self.machine
        return machine.isr.isr <= {machine.broker_id}

    def _damage_code(self) -> ErrorCode:
        """Another replica is about to lead, so ask again; or what is asked for is gone, and a consumer is to say so to
        its application, which may seek past it: Kafka's do so for CORRUPT_MESSAGE alone."""
        if self.is_last_copy:
            return ErrorCode.corrupt_message
        return ErrorCode.kafka_storage_error

    def _read_failed(self, failed: OSError | LogDamaged | BatchRefused, offset: int) -> Refusal:
        self._env.log.error(
            "read_failed", partition=str(self.topic_partition), offset=offset, cause=str(failed)
        )
        return Refusal(ErrorCode.kafka_storage_error, str(failed))

    async def read_waiting(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: int,
        min_one: bool,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        leader_only: bool = True,
    ) -> Read | Refusal:
        """`read`, with the disk waited for off the loop."""
        tries = self._cold_reads_max()
        for attempt in range(tries):
            try:
                return self.read(
                    offset,
                    max_bytes,
                    isolation=isolation,
                    min_one=min_one,
                    current_leader_epoch=current_leader_epoch,
                    last_fetched_epoch=last_fetched_epoch,
                    leader_only=leader_only,
                    block=attempt == tries - 1,
                )
            except Cold as cold:
                run = self._env.disk.run_aside if cold.aside else self._env.disk.run
                try:
                    await run(cold.work)
                except (OSError, LogDamaged) as failed:
                    return self._read_failed(failed, offset)
        raise AssertionError("a read that may block was cold")

    def _cold_reads_max(self) -> int:
        """Each segment may have something to be read of it first: what was aborted there, or how young it is."""
        return COLD_READS_MAX + len(self.log.segments)

    async def read_bytes(self, offset: int, max_bytes: int, *, isolation: int) -> bytes | ErrorCode:
        """The bytes themselves of at least one batch, for who looks into them on this node; the loop waits for no disk."""
        found = await self.read_waiting(offset, max_bytes, isolation=isolation, min_one=True)
        if isinstance(found, Refusal):
            return found.error
        try:
            return b"".join([await self._bytes_of(chunk) for chunk in found.records])
        except OSError as failed:
            return self._read_failed(failed, offset).error

    async def _bytes_of(self, chunk: Chunk) -> Buffer:
        if not isinstance(chunk, FileSlice):
            return chunk
        data = chunk.file.read_cached(chunk.position, chunk.length)
        if data is not None and len(data) == chunk.length:
            return data
        return await self._env.disk.run(chunk.file.read, chunk.position, chunk.length)

    # -- parked fetches --------------------------------------------------------------------------------

    def when_readable(self, wait: FetchWait) -> None:
        if self._readers is None:
            self._readers = {}
        self._readers[wait] = None

    def forget(self, wait: FetchWait) -> None:
        if self._readers is not None:
            self._readers.pop(wait, None)

    def readable_bytes(self, offset: int, max_bytes: int, isolation: int) -> int | None:
        # Whoever waits was let read here; another leader ends every wait.
        if self._why_not_read(NO_EPOCH, leader_only=False) is not ErrorCode.none:
            return None
        end = self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return None
        if offset >= end:
            return 0
        try:
            found = log.read(offset, max_bytes, limit=end, min_one=True, block=False)
        except (OSError, LogDamaged, Cold):
            return None  # the fetch itself finds out, and says what it is
        if found is None:
            return None
        weight = worth(log, found, offset, end, max_bytes, min_one=True)
        return weight if weight == ENOUGH else min(weight, max_bytes)

    def _tell_readers(self, *, at_once: bool = False) -> None:
        """More can be read; or (`at_once`) their answer is another one now."""
        if self._readers:
            for wait in list(self._readers):
                if at_once:
                    wait.end()
                else:
                    wait.on_change(self)

    def replicas_to_read(self, offset: int) -> list[BrokerId]:
        """Who is in sync and has `offset` (KIP-392): the leader, and followers by their acknowledgements."""
        machine = self.machine
        isr = machine.isr.isr
        return [
            BrokerId(broker_id)
            for broker_id, end in (
                (machine.broker_id, machine.log_end),
                *((other, replica.log_end) for other, replica in machine.replicas.items()),
            )
            if broker_id in isr and self.log.log_start_offset <= offset <= end
        ]

    # -- other questions -------------------------------------------------------------------------------

    def end_offset_for(self, leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest epoch up to this one, and where it ended; (-1, -1) if unknown."""
        machine = self.machine
        leading = (machine.leader_epoch, machine.epoch_start_offset) if self.is_leader else None
        return self.log.epochs.end_offset_for(leader_epoch, self.log.log_end_offset, leading)

    async def list_offset_waiting(
        self, timestamp: int, isolation: int
    ) -> tuple[int, int, int] | ErrorCode:
        """`list_offset`, with the disk waited for off the loop, and what takes long done there."""
        seek = Seek(timestamp, leaves=True)
        leader_epoch, cold_reads, tries = self.leader_epoch, 0, self._cold_reads_max()
        while self.leader_epoch == leader_epoch:
            may_block = cold_reads == tries - 1
            try:
                return self.list_offset(timestamp, isolation, block=may_block, seek=seek)
            except Cold as cold:
                assert not may_block, "a search that may block was cold"
                cold_reads += 1
                work = cold.work
            except Heavy as heavy:
                work = heavy.work
            try:
                await self._env.disk.run(work)
            except (OSError, LogDamaged, BatchRefused) as failed:
                return self._read_failed(failed, -1).error
        return ErrorCode.not_leader_or_follower  # whoever led when it was asked for leads no more

    def list_offset(
        self, timestamp: int, isolation: int, *, block: bool = True, seek: Seek | None = None
    ) -> tuple[int, int, int] | ErrorCode:
        """ListOffsets: (offset, timestamp, leader epoch), each -1 where there is none. `block` as in `read`."""
        error = self._why_not_read(NO_EPOCH)
        if error is not ErrorCode.none:
            return error
        log, machine = self.log, self.machine
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            known = log.epochs.starts and log.epochs.starts[0] <= start
            return start, -1, log.epochs.epochs[0] if known else -1
        end = self.last_stable_offset if isolation == READ_COMMITTED else machine.high_watermark
        # Elected, but what the last leader had committed is not known to be here yet.
        lags = machine.epoch_start_offset > machine.high_watermark
        if timestamp == LATEST:
            return ErrorCode.offset_not_available if lags else (end, -1, machine.leader_epoch)
        try:
            found = log.search(seek or Seek(timestamp), end, block=block)
        except (OSError, LogDamaged, BatchRefused) as failed:
            return self._read_failed(failed, -1).error
        if found is not None:
            return found.offset, found.timestamp, found.leader_epoch
        return ErrorCode.offset_not_available if lags else (-1, -1, -1)

    def delete_records(self, before: Offset | int) -> Offset | ErrorCode:
        """DeleteRecords: the log starts at `before` at the earliest (-1: at the high watermark)."""
        error = self._why_not_read(NO_EPOCH)
        if error is not ErrorCode.none:
            return error
        if not self.config.delete:
            return ErrorCode.policy_violation
        high_watermark = self.machine.high_watermark
        offset = high_watermark if before == -1 else before
        if not 0 <= offset <= high_watermark:
            return ErrorCode.offset_out_of_range
        self.log.delete_records_before(offset)
        self.on_log_start_moved()
        return Offset(self.log.log_start_offset)

    def on_log_start_moved(self) -> None:
        """Some who wait may wait for what is gone."""
        self._tell_readers()

    def active_producers(self) -> list[ProducerState]:
        return self.log.producers.states()
