"""Scenes of transactions: a coordinator that is left behind is told to end one, a batch comes when its transaction has ended.

Both have bare producers, which ask whom and when the scene wants; `aimed_faults.py` has the others, and what they share.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch

from ..checkers.observations import Ended, Refused
from ..checkers.txn_history import Sent
from ..workloads.txn_answers import FENCED, error_of
from ..workloads.txn_client import (
    ADD_OFFSETS_VERSION,
    ADD_PARTITIONS_VERSION,
    END_TXN,
    INIT_VERSION,
    PRODUCE,
)
from ..workloads.txn_keys import key_of, payload
from .aimed_faults import scene
from .bystander import GivenUp
from .left_behind import ANSWERED_S, KEYS_MAX, Matter, Scene

if TYPE_CHECKING:
    from .transaction_faults import TransactionFaults

TIMEOUT_MS: Final = 4_000
WRITTEN: Final = ("bank", "append", "in", "out")
COMMIT_ODDS: Final = 0.7
LATE_S_MAX: Final = 0.5


class BareProducer:
    """Each request to whom it is said. A refusal is told to who watches the coordinators, and an end that was heard of."""

    def __init__(
        self, one: Scene, transactional_id: str, place: TopicPartition, *, new_protocol: bool
    ) -> None:
        self.place = place  # of its coordinator
        self.transactional_id = transactional_id
        self.new_protocol = new_protocol
        self.producer_id, self.producer_epoch = -1, -1
        self._by = one.by
        self._watch: Any = one.faults.watch
        self._has_written = False

    async def at_coordinator(self, question: Any) -> Any:
        _, reply = await self._by.ask_leader(self.place, question, within_s=ANSWERED_S)
        return reply

    async def _ask(self, node_id: int, api_key: ApiKey, version: int, **fields: Any) -> Any:
        fields |= self._mine
        reply = await self._by.ask(node_id, api_key, version, **fields)
        if error_of(reply) is ErrorCode.none and hasattr(reply, "producer_epoch"):
            self.producer_id, self.producer_epoch = reply.producer_id, reply.producer_epoch
        return reply

    @property
    def _mine(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    async def init(self, node_id: int) -> Any:
        return await self._ask(
            node_id, ApiKey.init_producer_id, INIT_VERSION, transaction_timeout_ms=TIMEOUT_MS
        )

    async def add_offsets(self, node_id: int) -> Any:
        """A group's positions are to be part of the transaction: it is open from now on."""
        reply = await self._ask(
            node_id,
            ApiKey.add_offsets_to_txn,
            ADD_OFFSETS_VERSION,
            group_id=self.transactional_id,
        )
        self._has_written |= error_of(reply) is ErrorCode.none
        return reply

    async def add_partition(self, node_id: int, topic: str, partition: int) -> Any:
        """As clients of the old protocol do, before they write there."""
        mine = {f"v3_and_below_{name}": value for name, value in self._mine.items()}
        reply = await self._by.ask(
            node_id,
            ApiKey.add_partitions_to_txn,
            ADD_PARTITIONS_VERSION,
            v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
            **mine,
        )
        self._has_written |= error_of(reply) is ErrorCode.none
        return reply

    async def end(self, node_id: int, *, commit: bool) -> Any:
        asked = self.transactional_id, self.producer_id, self.producer_epoch
        reply = await self._ask(
            node_id, ApiKey.end_txn, END_TXN[self.new_protocol], committed=commit
        )
        error = error_of(reply)
        if error is ErrorCode.none:
            self._has_written = False
            self._watch.ended(Ended(*asked, commit))
        elif error in FENCED or (commit and error is ErrorCode.invalid_txn_state):
            self._watch.refused(Refused(*asked, error.name, has_written=self._has_written))
        return reply

    async def produce(self, node_id: int, topic: str, partition: int, batch: bytes) -> Any:
        rows = [{"index": partition, "records": batch}]
        reply = await self._by.ask(
            node_id,
            ApiKey.produce,
            PRODUCE[self.new_protocol],
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1_000,
            topic_data=[{"name": topic, "partition_data": rows}],
        )
        return reply.responses[0].partition_responses[0]


class Transaction:
    """A producer's transaction is begun at the new coordinator, and the old one, which knows of another or of none, is told to
    end it. Whatever it answers is a word that its producer acts on."""

    def __init__(self, one: Scene, producer: BareProducer) -> None:
        rng = one.faults.rng
        self.place = producer.place
        self._producer = producer
        self._before = rng.choice((None, True, False))  # what the old one remembers last: a commit
        self._commit = rng.random() < COMMIT_ODDS
        self._is_over = False

    async def begin(self) -> None:
        one = self._producer
        await one.at_coordinator(one.init)
        before = self._before
        if before is not None:
            await one.at_coordinator(one.add_offsets)
            await one.at_coordinator(lambda node_id: one.end(node_id, commit=before))

    async def go_on(self) -> None:
        await self._producer.at_coordinator(self._producer.add_offsets)

    async def ask(self, node_id: BrokerId) -> str:
        reply = await self._producer.end(node_id, commit=self._commit)
        self._is_over = error_of(reply) is ErrorCode.none
        return f"{error_of(reply).name} to {self._commit} after {self._before}"

    async def end(self) -> None:
        if not self._is_over:
            one = self._producer
            await one.at_coordinator(lambda node_id: one.end(node_id, commit=self._commit))


async def bare_producer(
    one: Scene, *, new_protocol: bool, led_by: BrokerId | None = None
) -> BareProducer | None:
    """That this node coordinates."""
    for number in range(KEYS_MAX):
        transactional_id = f"{one.name}-{number}"
        place = await one.by.place_of(TRANSACTION_STATE_TOPIC, transactional_id)
        if led_by is None or one.faults.nodes.leader(*place) == led_by:
            return BareProducer(one, transactional_id, place, new_protocol=new_protocol)
    return None


@scene
async def left_behind(one: Scene) -> None:
    """A coordinator sleeps, or is cut off, until there is another, and is asked before anybody tells it."""
    drawn, asked_for = one.faults.rng.random() < 0.5, one.faults.protocol
    producer = await bare_producer(one, new_protocol=asked_for == "new" if asked_for else drawn)
    assert producer is not None
    leader = one.faults.nodes.leader(*producer.place)
    matters: list[Matter] = [Transaction(one, producer)]
    if leader is not None:
        others = (await one.positions(led_by=leader), one.ends(WRITTEN, led_by=leader))
        matters += [each for each in others if each is not None]
    await one.play(matters)


@scene
async def late_batch(one: Scene) -> None:
    """A batch comes when its transaction has ended, and its producer never writes there again (KIP-890). It was the first
    in its partition: but for the coordinator nobody can tell that it is late."""
    faults: TransactionFaults = one.faults  # type: ignore[assignment]
    rng, book = faults.rng, faults.book
    producer = await bare_producer(one, new_protocol=False)
    assert producer is not None
    topic = rng.choice([name for name in WRITTEN if faults.nodes.partition(name, 0) is not None])
    state = faults.nodes.partition(topic, 0)
    assert state is not None
    place = TopicPartition(topic, 0)
    await producer.at_coordinator(producer.init)
    op = book.open(one.name)
    op.began_s = faults.world.loop.time()
    await producer.at_coordinator(lambda node_id: producer.add_partition(node_id, *place))
    await producer.at_coordinator(lambda node_id: producer.end(node_id, commit=False))
    await asyncio.sleep(rng.random() * LATE_S_MAX)
    op.sends.append(Sent(key_of(*place), book.next_value()))
    batch = build_batch(
        [Record(0, round(op.began_s), None, payload(op.number, op.sends[0].value), ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    op.ended_s, op.why = faults.world.loop.time(), "aborted on purpose"
    book.close(op)
    leader = faults.nodes.leader(*place)
    if leader is None:
        raise GivenUp(f"nobody leads {place}")
    try:
        answer = await producer.produce(leader, *place, bytes(batch))
        faults.world.trace.event("chaos", "late", place=str(place), told=answer.error_code.name)
    except Trouble:
        pass  # it may be there all the same
