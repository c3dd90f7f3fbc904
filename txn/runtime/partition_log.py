"""A partition of this node as the log of a coordinator: the only place where the two are fitted together."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import Offset, TopicPartition
from fencepost.replication.disk_room import DiskRoom
from fencepost.replication.log.producer_verdicts import Refused
from fencepost.replication.partition import Partition, Refusal

from .decision import Producer

ALL_REPLICAS = -1  # acks=all: what a coordinator says must be there when the next one takes over
READ_UNCOMMITTED = 0  # the coordinator sees its own open transactions


class _Write(NamedTuple):
    """A coordinator's batch in a client's transaction, before there is one."""

    producer_id: int
    producer_epoch: int
    base_sequence: int = -1
    last_offset_delta: int = 0
    max_timestamp: int = 0
    is_transactional: bool = True
    is_control: bool = False


class Replicas(Protocol):
    @property
    def room(self) -> DiskRoom: ...

    def partition(self, topic_partition: TopicPartition, /) -> Partition | ErrorCode: ...


class PartitionLog:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def log_start_offset(self) -> Offset:
        return Offset(self._partition.log_start_offset)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self._partition.log_end_offset)

    @property
    def high_watermark(self) -> Offset:
        return Offset(self._partition.high_watermark)

    def may_append(self, producer: Producer | None = None) -> ErrorCode:
        partition = self._partition
        error = partition.closed or partition.machine.check_append(ALL_REPLICAS)
        if producer is None or error is not ErrorCode.none:
            return error
        try:
            verdict = partition.producers.decide(_Write(*producer), origin_client=False)
        except (OSError, LogDamaged):
            return ErrorCode.kafka_storage_error
        return verdict.error if isinstance(verdict, Refused) else ErrorCode.none

    def append(
        self, batch: bytearray, now_ms: int, *, transaction_version: int = 0
    ) -> Offset | ErrorCode:
        done = self._partition.append_as_leader(
            batch,
            required_acks=ALL_REPLICAS,
            now_ms=now_ms,
            origin_client=False,
            transaction_version=transaction_version,
        )
        return done.error if isinstance(done, Refusal) else Offset(done.first_offset)

    async def committed(self, horizon: Offset) -> ErrorCode:
        if horizon <= self._partition.high_watermark and self._partition.is_leader:
            return ErrorCode.none
        return _committed(await self._partition.committed(Offset(horizon - 1)))

    def when_committed(
        self, horizon: Offset, tell: Callable[[ErrorCode], None]
    ) -> ErrorCode | None:
        if horizon <= self._partition.high_watermark and self._partition.is_leader:
            return ErrorCode.none
        known = self._partition.when_acknowledged(
            horizon - 1, ALL_REPLICAS, lambda code: tell(_committed(code))
        )
        return _committed(known) if isinstance(known, ErrorCode) else None

    async def read(self, offset: Offset, max_bytes: int) -> bytes | ErrorCode:
        return await self._partition.read_bytes(offset, max_bytes, isolation=READ_UNCOMMITTED)

    def damaged(self, why: str) -> None:
        self._partition.damaged(why)


class LocalPartitions:
    """The partitions that this node leads, for `Coordinator`."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def record_log(self, partition: TopicPartition) -> PartitionLog | ErrorCode:
        found = self._replicas.partition(partition)
        if isinstance(found, ErrorCode):
            return found
        return PartitionLog(found) if found.is_leader else ErrorCode.not_leader_or_follower

    def when_room(self, tell: Callable[[], None]) -> None:
        self._replicas.room.when_room.append(tell)


def _committed(code: ErrorCode) -> ErrorCode:
    # Too few replicas are in sync now, but the high watermark has passed: it is committed, for all that.
    return ErrorCode.none if code is ErrorCode.not_enough_replicas_after_append else code
