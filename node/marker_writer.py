"""Writes the ends of transactions into the partitions that this node leads.

INVARIANT  `none` for a partition means that the marker is committed there.
PREVENTS   a coordinator that takes a transaction for finished, whose partition forgets with its leader that it ended.
PROVED BY  tests/node/test_marker_writer.py::test_a_marker_is_answered_for_when_it_is_committed
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from fencepost.cluster.base.ports import Env
from fencepost.cluster.wire.records import control_batch
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Partition, Refusal
from fencepost.replication.partition_machine import ALL_REPLICAS
from fencepost.replication.waits import OffsetWait
from fencepost.txn.groups.service import GroupService
from fencepost.txn.runtime.decision import Producer
from fencepost.txn.transactions.marker_sender import Marker

E = ErrorCode
Codes = Mapping[TopicPartition, ErrorCode]
WRITE_S_MAX: Final = 30.0  # Kafka's request.timeout.ms; the coordinator sends again what is late
# A coordinator of groups that is not ready yet, in words that the transaction's coordinator expects of a partition.
_NOT_READY: Final = frozenset(
    {E.coordinator_load_in_progress, E.coordinator_not_available, E.not_coordinator}
)


class MarkerWriter:
    def __init__(self, env: Env, replicas: ReplicaManager, groups: GroupService) -> None:
        self._env = env
        self._replicas = replicas
        self._groups = groups
        self.written = 0

    async def write_here(self, markers: Sequence[Marker]) -> list[Codes]:
        """One after the other into the logs, and all waited for together: they share the syncs."""
        answers: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        outstanding = _Outstanding()
        in_groups = []
        for marker, answer in zip(markers, answers, strict=True):
            for place in marker.partitions:
                code = self._append(marker, place, partial(outstanding.take, answer, place))
                if isinstance(code, OffsetWait):
                    outstanding.waits[place, id(answer)] = code
                elif code is None:
                    in_groups.append(self._end_in_group(marker, place, answer))
                else:
                    answer[place] = code
        try:
            async with asyncio.timeout(WRITE_S_MAX):
                await asyncio.gather(*in_groups)
                await outstanding.over()
        except TimeoutError:
            outstanding.cancel()
        for marker, answer in zip(markers, answers, strict=True):
            for place in marker.partitions:
                answer.setdefault(place, E.request_timed_out)
        return list(answers)

    def _append(
        self, marker: Marker, place: TopicPartition, tell: Callable[[ErrorCode], None]
    ) -> OffsetWait | ErrorCode | None:
        """None: a group's coordinator writes it."""
        partition = self._replicas.partition(place)
        if isinstance(partition, ErrorCode):
            return partition
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return E.unknown_server_error  # Kafka finds no word for it
        if place.topic == TRANSACTION_STATE_TOPIC:
            return E.unsupported_for_message_format  # nobody can have written there
        try:
            waiting = partition.producers.verifications
        except (OSError, LogDamaged):
            return E.kafka_storage_error
        if waiting.is_of_another(marker.producer_id, marker.started_ms):
            return E.invalid_producer_epoch  # it is late: what it is to end has ended
        if place.topic == GROUP_OFFSETS_TOPIC:
            return None
        return self._append_to(partition, marker, tell)

    def _append_to(
        self, partition: Partition, marker: Marker, tell: Callable[[ErrorCode], None]
    ) -> OffsetWait | ErrorCode:
        now_ms = self._env.clock.now_ms()
        batch = control_batch(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=now_ms,
        )
        done = partition.append_as_leader(
            batch,
            required_acks=ALL_REPLICAS,
            now_ms=now_ms,
            origin_client=False,
            transaction_version=marker.transaction_version,
        )
        if isinstance(done, Refusal):
            return done.error
        self.written += 1
        wait = partition.when_acknowledged(done.last_offset, ALL_REPLICAS, tell)
        return _outcome(wait) if isinstance(wait, ErrorCode) else wait

    async def _end_in_group(
        self, marker: Marker, place: TopicPartition, answer: dict[TopicPartition, ErrorCode]
    ) -> None:
        code = await self._groups.end_transaction(
            place.partition,
            Producer(marker.producer_id, marker.producer_epoch),
            coordinator_epoch=marker.coordinator_epoch,
            commit=marker.commit,
            transaction_version=marker.transaction_version,
        )
        self.written += code is E.none
        answer[place] = E.not_leader_or_follower if code in _NOT_READY else code


class _Outstanding:
    """Markers that are in their logs and not committed yet."""

    __slots__ = ("_over", "waits")

    def __init__(self) -> None:
        self.waits: dict[tuple[TopicPartition, int], OffsetWait] = {}
        self._over: asyncio.Future[None] | None = None

    def take(
        self, answer: dict[TopicPartition, ErrorCode], place: TopicPartition, code: ErrorCode
    ) -> None:
        answer[place] = _outcome(code)
        self.waits.pop((place, id(answer)), None)
        if not self.waits and self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def over(self) -> None:
        if self.waits:
            self._over = asyncio.get_running_loop().create_future()
            await self._over

    def cancel(self) -> None:
        for wait in self.waits.values():
            wait.cancel()


def _outcome(code: ErrorCode) -> ErrorCode:
    # Too few replicas are in sync now, but the high watermark has passed: it is committed, for all that.
    return E.none if code is E.not_enough_replicas_after_append else code
