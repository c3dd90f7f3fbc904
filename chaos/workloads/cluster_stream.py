"""Idempotent producers and readers that follow the leaders of a cluster, and leave a history for the checkers.

A producer does what librdkafka does: up to five batches in flight; after any failure, and whenever it can't know,
it sends what was not acknowledged again, in order, with the sequence numbers that it had, to whoever leads by
then; where the former leader has refused the first of them, others may overtake it, as in librdkafka, where it waits for
a pause of its own. It never asks for a new producer id: the cluster must know it through every failover.

INVARIANT  a producer is never told anything that would end it, and a reader never that its offset is not there.
PREVENTS   OUT_OF_ORDER_SEQUENCE_NUMBER after a failover, and OFFSET_OUT_OF_RANGE for what was read before.
PROVED BY  tests/sim/test_cluster_stream.py::test_a_producer_that_is_told_to_end_says_so_in_the_history
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import build_batch, read_records

from ..checkers.history import FINAL, History, Operation
from ..checkers.observations import Told
from .cluster_client import LOOK_AGAIN, ClusterClient, Damaged, Leader, end_offset, fetch

IN_FLIGHT_MAX: Final = 5
RETRY_PAUSE_S: Final = 0.1
ACK_TIMEOUT_MS: Final = 3000
MAX_WAIT_MS: Final = 200
ASK_END_ODDS: Final = 0.1
ANY_EPOCH: Final = -1
# Also behind a batch that was refused: librdkafka begins a new epoch on it, and sends again under it what may be written.
OUT_OF_ORDER: Final = ErrorCode.out_of_order_sequence_number
# Nothing is wrong with the client's picture: try the same leader again.
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.corrupt_message,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.throttling_quota_exceeded,
    }
)


class ToldToEnd(AssertionError):
    """The cluster broke its promise to a client: the history says which and how."""


class Batch:
    __slots__ = ("attempts", "base_sequence", "values")

    def __init__(self, base_sequence: int, values: list[int]) -> None:
        self.base_sequence = base_sequence
        self.values = values
        self.attempts = 0


class StreamProducer:
    """Writes ascending numbers to one partition until told to stop and all of it is acknowledged."""

    overtaken_odds = 0.5

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        partition: int,
        history: History,
        *,
        pause_s: float = 0.02,
    ) -> None:
        self.client = client
        self.env = client.env
        self.name = client.name
        self.topic = topic
        self.partition = partition
        self.key = f"{topic}-{partition}"
        self.history = history
        self.pause_s = pause_s
        self.stopping = False
        self.acknowledged = 0
        self.longest_gap_s = 0.0  # between two acknowledgements
        self._last_acknowledged_s = 0.0
        self.errors: dict[str, int] = {}
        self._unacknowledged: deque[Batch] = deque()
        self._producer_id = -1
        self._count = 0
        self._refused_by: Leader | None = None  # who sent the first batch away just now

    @property
    def waiting(self) -> int:
        """Batches without an answer that counts."""
        return len(self._unacknowledged)

    async def run(self) -> None:
        while self._producer_id < 0:
            try:
                reply = await self.client.any().request(
                    ApiKey.init_producer_id, transactional_id=None, transaction_timeout=0
                )
            except Trouble as trouble:
                self._count_error(f"init: {type(trouble).__name__}")
                await self._pause()
                continue
            if reply.error_code is ErrorCode.none:
                self._producer_id = reply.producer_id
            else:
                self._count_error(f"init: {reply.error_code.name}")
                await self._pause()
        while not self.stopping or self._unacknowledged:
            if await self._round():
                await self.env.clock.sleep(self.env.rng.random() * 2 * self.pause_s)
            else:
                await self._pause()

    async def _pause(self) -> None:
        await self.env.clock.sleep(RETRY_PAUSE_S * (0.5 + self.env.rng.random()))

    def _count_error(self, name: str) -> None:
        self.errors[name] = self.errors.get(name, 0) + 1

    async def _round(self) -> bool:
        """Send what is not acknowledged, and new batches, side by side; False after a failure."""
        try:
            leader = await self.client.leader_now(self.topic, self.partition)
        except Trouble as trouble:
            self._count_error(f"metadata: {type(trouble).__name__}")
            return False
        in_flight = self.env.rng.randint(1, IN_FLIGHT_MAX)
        while len(self._unacknowledged) < in_flight and not self.stopping:
            self._unacknowledged.append(self._new_batch())
        batches = list(self._unacknowledged)
        sent = self._overtaken(leader, batches)
        replies = await asyncio.gather(
            *(self._send(leader, batch) for batch in sent), return_exceptions=True
        )
        told = dict(zip(sent, replies, strict=True))
        return self._take_all(leader, batches, [told[batch] for batch in batches])

    def _overtaken(self, leader: Leader, batches: list[Batch]) -> list[Batch]:
        """In the order in which they are sent."""
        refused_by, self._refused_by = self._refused_by, None
        if refused_by is None or len(batches) < 2 or refused_by.node_id == leader.node_id:
            return batches
        if refused_by.leader_epoch >= leader.leader_epoch:
            return batches
        if self.env.rng.random() >= self.overtaken_odds:
            return batches
        place = self.env.rng.randint(1, len(batches) - 1)
        return [*batches[1 : place + 1], batches[0], *batches[place + 1 :]]

    def _take_all(self, leader: Leader, batches: Sequence[Batch], replies: Sequence[Any]) -> bool:
        well, lost = True, False
        for batch, reply in zip(batches, replies, strict=True):
            # Behind one that failed only success counts, and what would end a client.
            well = self._take(leader, batch, reply, is_head=well, lost=lost) and well
            lost = lost or isinstance(reply, Trouble)
        return well

    def _take(self, leader: Leader, batch: Batch, reply: Any, *, is_head: bool, lost: bool) -> bool:
        """`lost`: one before it may not have come there."""
        if isinstance(reply, Trouble):
            self._count_error(type(reply).__name__)
            self.client.forget(self.topic, self.partition, leader)
            return False
        if isinstance(reply, BaseException):
            raise reply
        error = reply.error_code
        if error is ErrorCode.none or error is ErrorCode.duplicate_sequence_number:
            if not is_head:
                return False  # acknowledged when its turn comes: it is sent again, and known
            self._acknowledge(batch, reply.base_offset if error is ErrorCode.none else None)
            return True
        self._count_error(error.name)
        if error in LOOK_AGAIN:
            self.client.forget(self.topic, self.partition, leader)
            if is_head:
                self._refused_by = leader
        elif error not in TRY_AGAIN and (is_head or (error is OUT_OF_ORDER and not lost)):
            why = (
                f"{error.name} from node {leader.node_id} for sequence {batch.base_sequence} "
                f"(attempt {batch.attempts}) of producer {self._producer_id}"
            )
            self.history.append(Operation("die", "info", self.name, self.key, error=why))
            raise ToldToEnd(f"{self.name}: {why}")
        return False

    def _new_batch(self) -> Batch:
        size = self.env.rng.randint(1, 4)
        batch = Batch(self._count, list(range(self._count, self._count + size)))
        self._count += size
        return batch

    async def _send(self, leader: Leader, batch: Batch) -> Any:
        batch.attempts += 1
        payloads = [self.payload_of(value) for value in batch.values]
        records, codec = self.client.dress((self.topic, self.partition), payloads)
        data = build_batch(
            records,
            compression=codec,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=batch.base_sequence,
        )
        reply = await leader.wire.request(
            ApiKey.produce,
            acks=-1,
            timeout=ACK_TIMEOUT_MS,
            topic_data=[
                {
                    "topic_id": leader.topic_id,
                    "partition_data": [{"index": self.partition, "records": data}],
                }
            ],
        )
        return reply.responses[0].partition_responses[0]

    def payload_of(self, value: int) -> bytes:
        return f"{self.name}/{value}".encode()

    def _acknowledge(self, batch: Batch, base_offset: int | None) -> None:
        assert self._unacknowledged[0] is batch
        self._unacknowledged.popleft()
        self.acknowledged += len(batch.values)
        now_s, before_s = self.env.clock.steady(), self._last_acknowledged_s
        if before_s:
            self.longest_gap_s = max(self.longest_gap_s, now_s - before_s)
        self._last_acknowledged_s = now_s
        for place, value in enumerate(batch.values):
            offset = None if base_offset is None else base_offset + place
            self.history.append(Operation("send", "ok", self.name, self.key, value, offset))


class StreamReader:
    """Reads one partition from its beginning, wherever it is led; one named `final` ends at the high watermark."""

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        partition: int,
        history: History,
        *,
        name: str = "",
        told: Callable[[Told], None] | None = None,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> None:
        self.client = client
        self.max_wait_ms = max_wait_ms
        self.name = name or client.name
        self.topic = topic
        self.partition = partition
        self.key = f"{topic}-{partition}"
        self.history = history
        self.stopping = False
        self.offset = 0
        self._told = told

    async def run(self) -> None:
        while not self.stopping:
            if not await self.step():
                await self.client.env.clock.sleep(RETRY_PAUSE_S * self.client.env.rng.random())

    async def read_all(self) -> None:
        """Up to the high watermark that a leader names."""
        while not (await self.step() and self.offset >= self._end):
            await self.client.env.clock.sleep(RETRY_PAUSE_S)

    async def step(self) -> bool:
        """One fetch; False when it brought nothing for a reason that a pause may mend."""
        self._end = 1 << 62
        try:
            leader = await self.client.whom_to_read(self.topic, self.partition)
        except Trouble:
            return False
        try:
            await self._maybe_ask_end(leader)
            answer = await fetch(
                leader,
                self.partition,
                self.offset,
                max_wait_ms=self.max_wait_ms,
                epoch=leader.leader_epoch,
            )
        except Trouble as trouble:
            if isinstance(trouble, Damaged):
                self.client.served_damage(self.key, self.offset, trouble)
            self.client.forget(self.topic, self.partition, leader)
            return False
        return await self.hear(leader, answer)

    async def hear(self, leader: Leader, answer: Any) -> bool:
        """What its leader says of the partition."""
        error = answer.error_code
        if error in LOOK_AGAIN:
            self.client.forget(self.topic, self.partition, leader)
            return False
        if error is ErrorCode.offset_not_available:
            return False
        if leader.follows and error is ErrorCode.offset_out_of_range:
            return False  # it has not copied as much yet
        if error is ErrorCode.corrupt_message:
            self.client.refused_as_damaged()
            return False
        if error is not ErrorCode.none:
            return await self._refused(leader, error)
        self.client.was_served(leader)
        if not leader.follows:
            self._answered(leader, answer)
        self._take(answer)
        self._end = answer.high_watermark
        return True

    async def _refused(self, leader: Leader, error: ErrorCode) -> bool:
        """What no pause mends."""
        why = f"{error.name} from node {leader.node_id} at offset {self.offset}"
        self.history.append(Operation("die", "info", self.name, self.key, error=why))
        raise ToldToEnd(f"reader {self.name} of {self.key}: {why}")

    def _answered(self, leader: Leader, answer: Any) -> None:
        """Before its records are looked at."""
        if self._told is not None:
            key = f"{leader.topic_id}-{self.partition}"
            self._told(Told(self.name, key, leader.leader_epoch, answer.high_watermark))

    async def _maybe_ask_end(self, leader: Leader) -> None:
        """Unlike a fetch's high watermark, the end never goes back, whoever leads (KIP-207)."""
        if self._told is None or leader.follows or self.client.env.rng.random() >= ASK_END_ODDS:
            return
        end = await end_offset(leader, self.topic, self.partition)
        if end is not None:
            key = f"{leader.topic_id}-{self.partition}"
            self._told(Told(f"{self.name}'s ListOffsets", key, ANY_EPOCH, end))

    def _take(self, answer: Any) -> None:
        data, position = memoryview(answer.records or b""), 0
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12])
            records = read_records(data[position : position + size])
            self.client.dressed.check((self.topic, self.partition), records)
            for record in records:
                if record.offset >= self.offset:
                    writer, _, value = (record.value or b"").decode().rpartition("/")
                    self.history.append(
                        Operation(
                            "read", "ok", self.name, self.key, int(value), record.offset, writer
                        )
                    )
                    self.offset = record.offset + 1
            position += size


__all__ = ["FINAL", "StreamProducer", "StreamReader", "ToldToEnd"]
