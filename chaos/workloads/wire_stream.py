"""Idempotent producers and a final reader on the small wire client: what runs in the simulator.

The producer does what librdkafka does: up to five batches in flight, and after any failure it sends what was not
acknowledged again, in order, with the sequence numbers that it had. It never asks for a new producer id: the
broker must know it through every crash.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ports import Env
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch, read_records

IN_FLIGHT_MAX: Final = 5
REQUEST_TIMEOUT_S: Final = 4.0
RETRY_PAUSE_S: Final = 0.1

# What says nothing about whether the batch is there, or that it is not there yet.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.corrupt_message,
    }
)


class Violation(AssertionError):
    """The broker broke its promise."""


@dataclass(slots=True)
class Batch:
    base_sequence: int
    values: list[str]
    attempts: int = 0


@dataclass(slots=True)
class Stream:
    """What one producer knows in the end. `acknowledged` are (offset, value); offset None when not told."""

    name: str
    partition: int
    acknowledged: list[tuple[int | None, str]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)


async def topic_id(client: WireClient, topic: str) -> UUID | None:
    reply = await client.request(
        ApiKey.metadata, topics=[{"name": topic}], allow_auto_topic_creation=False
    )
    found = reply.topics[0]
    return found.topic_id if found.error_code is ErrorCode.none else None


class IdempotentProducer:
    """Writes `stream.sent` to one partition until told to stop and everything is acknowledged."""

    def __init__(self, env: Env, address: tuple[str, int], topic: str, stream: Stream) -> None:
        self.env = env
        self.client = WireClient(env, *address, client_id=stream.name, timeout_s=REQUEST_TIMEOUT_S)
        self.topic = topic
        self.stream = stream
        self.stopping = False
        self._unacknowledged: deque[Batch] = deque()
        self._producer_id = -1
        self._next_sequence = 0
        self._count = 0
        self._topic_id: UUID | None = None

    async def run(self) -> None:
        while self._producer_id < 0 or self._topic_id is None:
            try:
                reply = await self.client.request(
                    ApiKey.init_producer_id, transactional_id=None, transaction_timeout=0
                )
                if reply.error_code is ErrorCode.none:
                    self._producer_id = reply.producer_id
                self._topic_id = await topic_id(self.client, self.topic)
            except Trouble:
                await self.env.clock.sleep(RETRY_PAUSE_S)
        while not self.stopping or self._unacknowledged:
            if not await self._round():
                await self.env.clock.sleep(RETRY_PAUSE_S * (1 + self.env.rng.random()))
        await self.client.close()

    async def _round(self) -> bool:
        """Send what is not acknowledged, and new batches, side by side; False after a failure."""
        while len(self._unacknowledged) < IN_FLIGHT_MAX and not self.stopping:
            self._unacknowledged.append(self._new_batch())
        batches = list(self._unacknowledged)
        replies = await asyncio.gather(
            *(self._send(batch) for batch in batches), return_exceptions=True
        )
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, Trouble):
                return False
            if isinstance(reply, BaseException):
                raise reply
            error = reply.error_code
            if error is ErrorCode.none or error is ErrorCode.duplicate_sequence_number:
                self._acknowledge(batch, reply.base_offset if error is ErrorCode.none else None)
            elif error in RETRIABLE:
                return False
            else:  # all before it were acknowledged: OUT_OF_ORDER_SEQUENCE_NUMBER is as wrong as any
                raise Violation(
                    f"{self.stream.name}: {error.name} for sequence {batch.base_sequence} "
                    f"(attempt {batch.attempts}) of producer {self._producer_id}"
                )
        await self.env.clock.sleep(self.env.rng.random() * 0.02)
        return True

    def _new_batch(self) -> Batch:
        size = self.env.rng.randint(1, 4)
        values = [f"{self.stream.name}/{self._count + place}" for place in range(size)]
        batch = Batch(self._next_sequence, values)
        self._count += size
        self._next_sequence += size
        self.stream.sent += values
        return batch

    async def _send(self, batch: Batch) -> Any:
        batch.attempts += 1
        now = self.env.clock.now_ms()
        data = build_batch(
            [
                Record(place, now, None, value.encode(), ())
                for place, value in enumerate(batch.values)
            ],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=batch.base_sequence,
        )
        partition = {"index": self.stream.partition, "records": data}
        reply = await self.client.request(
            ApiKey.produce,
            acks=-1,
            timeout=3000,
            topic_data=[{"topic_id": self._topic_id, "partition_data": [partition]}],
        )
        return reply.responses[0].partition_responses[0]

    def _acknowledge(self, batch: Batch, base_offset: int | None) -> None:
        assert self._unacknowledged[0] is batch
        self._unacknowledged.popleft()
        for place, value in enumerate(batch.values):
            offset = None if base_offset is None else base_offset + place
            self.stream.acknowledged.append((offset, value))


async def read_all(
    env: Env, address: tuple[str, int], topic: str, partition: int
) -> list[tuple[int, str]]:
    """Everything of a partition up to its high watermark, as (offset, value)."""
    client = WireClient(env, *address, client_id="reader", timeout_s=REQUEST_TIMEOUT_S)
    found: list[tuple[int, str]] = []
    offset, end = 0, -1
    id_ = await topic_id(client, topic)
    while offset != end:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        reply = await client.request(
            ApiKey.fetch,
            max_wait=100,
            min_bytes=1,
            topics=[{"topic_id": id_, "partitions": [wanted]}],
            forgotten_topics_data=[],
        )
        answer = reply.responses[0].partitions[0]
        if answer.error_code is not ErrorCode.none:
            raise Violation(f"{topic}-{partition} can't be read: {answer.error_code.name}")
        end = answer.high_watermark
        data, position = memoryview(answer.records or b""), 0
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12])
            found += [
                (record.offset, (record.value or b"").decode())
                for record in read_records(data[position : position + size])
                if record.offset >= offset
            ]
            position += size
        if found:
            offset = max(offset, found[-1][0] + 1)
    await client.close()
    return found


def check(streams: list[Stream], found: dict[int, list[tuple[int, str]]]) -> None:
    """Nothing acknowledged is lost, nothing is there twice or is another's, each producer's order is kept."""
    for partition, log in found.items():
        names = {stream.name for stream in streams if stream.partition == partition}
        strays = [each for each in log if each[1].partition("/")[0] not in names]
        if strays:
            raise Violation(f"partition {partition}: nobody sent there: {strays[:5]}")
    for stream in streams:
        log = found[stream.partition]
        mine = [(offset, value) for offset, value in log if value.startswith(f"{stream.name}/")]
        values = [value for _, value in mine]
        if len(set(values)) != len(values):
            twice = sorted({value for value in values if values.count(value) > 1})
            raise Violation(f"{stream.name}: written twice: {twice[:5]}")
        there = {value: offset for offset, value in mine}
        for offset, value in stream.acknowledged:
            if value not in there:
                raise Violation(f"{stream.name}: acknowledged at {offset} and lost: {value}")
            if offset is not None and there[value] != offset:
                raise Violation(
                    f"{stream.name}: {value} acknowledged at {offset}, is at {there[value]}"
                )
        if values != stream.sent[: len(values)]:
            raise Violation(f"{stream.name}: out of order: {values[:5]}…")
