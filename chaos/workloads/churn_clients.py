"""Who produces, consumes and transacts in topics that come and go: see `churn.py`."""

import random
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch

from ..checkers.life_positions import Placed
from ..checkers.lives import ANY
from ..checkers.txn_history import Sent, Txn
from .churn import RETRY_PAUSE_S, living
from .churn_positions import LifePositions
from .cluster_client import ClusterClient, Leader
from .txn_answers import Partition
from .txn_book import Book
from .txn_client import PRODUCE_BY_ID, TransactionalProducer
from .txn_habits import Habits
from .txn_keys import key_of, life_key, payload
from .txn_reader import CommittedReader
from .txn_transactor import Transactor

CHURN_GROUP: Final = "lives"
PLAIN_GROUP: Final = "lives-plain"  # that commits outside of transactions
OFFSETS_ODDS: Final = 0.3
ASK_ODDS: Final = 0.3
LOOK_ODDS: Final = 0.1
ACK_TIMEOUT_MS: Final = 3_000
PAUSE_S: Final = 0.06


class ChurnWriter(Transactor):
    """Transactions over topics that come and go and one that stays; now and then with a group's positions in them."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        topics: Sequence[str],
        stays: Sequence[Partition],
        transactional_id: str,
        habits: Habits,
    ) -> None:
        super().__init__(client, book, transactional_id, habits)
        self.topics = list(topics)
        self.stays = list(stays)
        self.placed: list[Placed] = []

    async def work(self, producer: TransactionalProducer, op: Txn) -> None:
        rng = self.client.env.rng
        producer.by_id = producer.new_protocol
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.4:
                await self.book.send(producer, op, rng.choice(self.stays))
            else:
                await self._send(producer, op, rng.choice(self.topics), rng.randint(1, 3))
            self.habits.maybe_crash(self.client)
        if rng.random() < OFFSETS_ODDS:
            await self._place(producer, op, rng.choice(self.topics))

    async def _place(self, producer: TransactionalProducer, op: Txn, topic: str) -> None:
        """A position, and for which topic of that name it is meant."""
        meant, before, clock = (
            self.client.topic_id(topic),
            _repeated(producer),
            self.client.env.clock,
        )
        placed = Placed(CHURN_GROUP, topic, str(meant), op.number, clock.steady())
        placed.in_transaction = True
        self.placed.append(placed)
        await producer.send_offsets(CHURN_GROUP, {(topic, 0): op.number}, str(op.number))
        placed.acknowledged_s = clock.steady()
        placed.is_once = _repeated(producer) == before

    async def _send(self, producer: TransactionalProducer, op: Txn, topic: str, count: int) -> None:
        """Which topic of that name took it, is known when it did; the others may have it, too."""
        rng = self.client.env.rng
        if self.client.topic_id(topic) is None or rng.random() < LOOK_ODDS:
            try:
                await self.client.refresh(topic)
            except Trouble:
                return
        partition = rng.randrange(self.client.partitions(topic) or 1)
        values = [self.book.next_value() for _ in range(count)]
        offset = None
        try:
            offset = await producer.send(
                topic, partition, [payload(op.number, value) for value in values]
            )
        finally:
            for topic_id in _last_last(producer.tried) if producer.by_id else [ANY]:
                key = life_key(topic, topic_id, partition)
                op.sends += [Sent(key, value) for value in values]
            if offset is not None:
                taken = enumerate(op.sends[-count:])
                op.sends[-count:] = [sent._replace(offset=offset + at) for at, sent in taken]


def _repeated(producer: TransactionalProducer) -> int:
    """How often positions were sent again."""
    again = f"{ApiKey.txn_offset_commit.name}: "
    return sum(times for what, times in producer.errors.items() if what.startswith(again))


def _last_last(tried: Sequence[UUID]) -> list[UUID]:
    """Each once, and that of the last try at the end: it is the one that answered."""
    return [*(each for each in dict.fromkeys(tried) if each != tried[-1]), *tried[-1:]]


class LifeSender:
    """One batch after another to a topic by its id, without a producer id: each is sent once, whatever becomes of it."""

    def __init__(self, client: ClusterClient, book: Book, topics: Sequence[str]) -> None:
        self.client = client
        self.book = book
        self.topics = list(topics)
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            topic = rng.choice(self.topics)
            try:
                if self.client.topic_id(topic) is None or rng.random() < LOOK_ODDS:
                    await self.client.refresh(topic)
                partition = rng.randrange(self.client.partitions(topic) or 1)
                leader = await self.client.leader_now(topic, partition)
            except Trouble:
                await clock.sleep(RETRY_PAUSE_S)
                continue
            await self._send(leader, topic, partition)
            await clock.sleep(PAUSE_S * rng.random())

    async def _send(self, leader: Leader, topic: str, partition: int) -> None:
        clock = self.client.env.clock
        op = self.book.open(self.client.name)
        # Each has a process of its own: one whose answer was lost may arrive behind the next.
        op.f, op.process, op.began_s = "send", f"{self.client.name}.{op.number}", clock.steady()
        key = life_key(topic, leader.topic_id, partition)
        op.sends = [Sent(key, self.book.next_value())]
        self.book.begun(op)
        record = Record(0, clock.now_ms(), None, payload(op.number, op.sends[0].value))
        rows = [{"index": partition, "records": build_batch([record])}]
        op.type, op.why = "info", "no answer"
        try:
            reply = await leader.wire.request(
                ApiKey.produce,
                PRODUCE_BY_ID,
                transactional_id=None,
                acks=-1,
                timeout_ms=ACK_TIMEOUT_MS,
                topic_data=[{"topic_id": leader.topic_id, "partition_data": rows}],
            )
        except Trouble as trouble:
            op.type = "fail" if trouble.outcome is Outcome.REFUSED else "info"
            op.why = str(trouble)
            self.client.forget(topic, partition, leader)
        else:
            answer = reply.responses[0].partition_responses[0]
            op.why = answer.error_code.name
            if answer.error_code is ErrorCode.none:
                op.type, self.acknowledged = "ok", self.acknowledged + 1
                op.sends = [op.sends[0]._replace(offset=answer.base_offset)]
            else:
                self.client.forget(topic, partition, leader)
        finally:
            op.ended_s = clock.steady()
            self.book.close(op)


class LifeReader(CommittedReader):
    """Where it is in a topic is its own for each topic of that name."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(client)  # ends are asked for by name: of whichever there is
        self._lives: dict[Partition, UUID] = {}
        self._left: dict[tuple[UUID, int], int] = {}

    def position_at(self, leader: Leader, topic: str, partition: int) -> int:
        place = topic, partition
        before = self._lives.get(place)
        if before != leader.topic_id:
            if before is not None:
                self._left[before, partition] = self.positions[place]
            self._lives[place] = leader.topic_id
            self.positions[place] = self._left.get((leader.topic_id, partition), 0)
        return self.positions[place]

    def key_at(self, leader: Leader, topic: str, partition: int) -> str:
        return life_key(topic, leader.topic_id, partition)


class LifeFollower:
    """Reads whatever there is of these topics, and of those that stay. By `dice` it asks now and then for the groups' positions."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        topics: Sequence[str],
        stays: Sequence[Partition],
        *,
        dice: random.Random | None = None,
    ) -> None:
        self.client = client
        self.book = book
        self.topics = list(topics)
        self.stays = list(stays)
        self.dice = dice
        self.stopping = False
        self.acknowledged = 0
        self.positions = [
            LifePositions(client, group, topics) for group in (CHURN_GROUP, PLAIN_GROUP)
        ]
        self.reader = LifeReader(client)
        self.steady = CommittedReader(client)

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            topic = rng.choice(self.topics)
            op = Txn("read", "ok", self.client.name, began_s=clock.steady())
            try:
                if self.client.topic_id(topic) is None or rng.random() < LOOK_ODDS:
                    await self.client.refresh(topic)
            except Trouble:
                await clock.sleep(RETRY_PAUSE_S)
            for partition in range(self.client.partitions(topic)):
                op.polls += await self.reader.poll(topic, partition) or []
            op.polls += await self.steady.poll(*rng.choice(self.stays)) or []
            op.ended_s = clock.steady()
            self.book.close(op)
            if self.dice is not None and self.dice.random() < ASK_ODDS:
                await self.dice.choice(self.positions).ask()
            await clock.sleep(PAUSE_S * rng.random())

    async def read_on(self) -> dict[str, str | None]:
        """For the end, when nothing is broken any more: all that there is, and the ids of the topics."""
        clock = self.client.env.clock
        op = Txn("read", "ok", self.client.name, began_s=clock.steady())
        while True:
            try:
                found = await living(self.client, self.topics)
                if all([await self.client.refresh(each) for each in found if found[each]]):
                    break
            except Trouble:
                pass
            await clock.sleep(RETRY_PAUSE_S)
        for topic in (each for each in self.topics if found[each] is not None):
            places = [(topic, at) for at in range(self.client.partitions(topic))]
            await self.reader.read_all(places, op)
        await self.steady.read_all(self.stays, op)
        op.positions = {key_of(*at): where for at, where in self.steady.positions.items()}
        op.ended_s = clock.steady()
        self.book.close(op)
        return {topic: None if each is None else str(each) for topic, each in found.items()}
