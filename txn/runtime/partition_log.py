"""A partition of this node as the log of a coordinator: the only place where the two are fitted together."""

from typing import Protocol

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import Offset, TopicPartition
from fencepost.cluster.base.ports import Chunk, FileSlice
from fencepost.replication.partition import Partition, Refusal

ALL_REPLICAS = -1  # acks=all: what a coordinator says must be there when the next one takes over
READ_UNCOMMITTED = 0  # the coordinator sees its own open transactions


class Replicas(Protocol):
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

    def may_append(self) -> ErrorCode:
        return self._partition.closed or self._partition.machine.check_append(ALL_REPLICAS)

    def append(self, batch: bytearray, now_ms: int) -> Offset | ErrorCode:
        done = self._partition.append_as_leader(
            batch, required_acks=ALL_REPLICAS, now_ms=now_ms, origin_client=False
        )
        return done.error if isinstance(done, Refusal) else Offset(done.first_offset)

    async def committed(self, horizon: Offset) -> ErrorCode:
        if horizon <= self._partition.high_watermark and self._partition.is_leader:
            return ErrorCode.none
        code = await self._partition.committed(Offset(horizon - 1))
        # Too few replicas are in sync now, but the high watermark has passed: it is committed, for all that.
        return ErrorCode.none if code is ErrorCode.not_enough_replicas_after_append else code

    async def read(self, offset: Offset, max_bytes: int) -> bytes | ErrorCode:
        found = await self._partition.read_waiting(
            offset, max_bytes, isolation=READ_UNCOMMITTED, min_one=True
        )
        if isinstance(found, Refusal):
            return found.error
        return b"".join(_bytes_of(chunk) for chunk in found.records)


class LocalPartitions:
    """The partitions that this node leads, for `Coordinator`."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def record_log(self, partition: TopicPartition) -> PartitionLog | ErrorCode:
        found = self._replicas.partition(partition)
        if isinstance(found, ErrorCode):
            return found
        return PartitionLog(found) if found.is_leader else ErrorCode.not_leader_or_follower


def _bytes_of(chunk: Chunk) -> bytes | bytearray | memoryview:
    if isinstance(chunk, FileSlice):
        return chunk.file.read(chunk.position, chunk.length)
    return chunk
