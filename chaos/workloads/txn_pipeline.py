"""Consume, transform, produce, exactly once: outputs and the positions of their inputs in the same transaction.

Two ways to keep two workers from one partition. By id: each partition has a transactional id, and who starts with it fences
who had it before (a worker's twin is a zombie that wakes up). By group: every worker has an id of its own, and
the group's generation fences who is no longer a member (KIP-447).
"""

from collections.abc import Sequence
from typing import Final

from ..checkers.txn_history import NO_NUMBER, Txn
from .cluster_client import ClusterClient
from .group_member import GroupMember
from .txn_answers import Abortable, Fenced, Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_follower import TELL_S
from .txn_habits import RESTART_S, Crashed, Habits
from .txn_keys import key_of
from .txn_reader import CommittedReader, GroupPositions

GROUP: Final = "pipeline"
GROUP_BY_IDS: Final = "pipeline-ids"  # where both ways are at work side by side
IDLE_S: Final = 0.1
# A batch has to fit a segment, of which a world's smallest has 1,024 bytes (chaos/sim/limits.py); a dressed record takes up to 100.
TOGETHER_MAX: Final = 8


class Feeder:
    """Writes what the pipeline reads, some at a time, in transactions of which some are aborted."""

    def __init__(
        self, client: ClusterClient, book: Book, inputs: Sequence[Partition], habits: Habits
    ) -> None:
        self.client = client
        self.book = book
        self.inputs = list(inputs)
        self.habits = habits
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            producer = self.habits.producer(self.client, self.client.name)
            self.producers.append(producer)
            try:
                await producer.init()
                while producer.alive and not self.stopping:
                    await self._feed(producer)
                    await clock.sleep(rng.random() * 4 * self.habits.pause_s)
            except (Abortable, Fenced, Crashed):
                pass
            await clock.sleep(RESTART_S * rng.random())

    async def _feed(self, producer: TransactionalProducer) -> None:
        rng = self.client.env.rng
        op = self.book.open(self.client.name)

        async def work() -> None:
            for place in rng.sample(self.inputs, rng.randint(1, len(self.inputs))):
                await self.book.send(producer, op, place, [0] * rng.randint(1, 3))

        try:
            await self.habits.transact(producer, op, work)
        finally:
            self.book.close(op)
        self.acknowledged += op.type == "ok"


class Worker:
    """With a `member` it works on what its group gives it, else on `inputs`, which are its id's own."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        inputs: Sequence[Partition],
        outputs: Sequence[Partition],
        transactional_id: str,
        habits: Habits,
        *,
        member: GroupMember | None = None,
        group: str = GROUP,
    ) -> None:
        self.client = client
        self.book = book
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.transactional_id = transactional_id
        self.habits = habits
        self.member = member
        self.group = group
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []
        self._told_s = 0.0  # when it last said that it was shown nothing

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            producer = self.habits.producer(self.client, self.transactional_id)
            self.producers.append(producer)
            try:
                await (
                    producer.init()
                )  # before the positions are read: who had them can't move them any more
                await self._work(producer)
            except (Abortable, Fenced):
                pass
            except Crashed:
                if self.member is not None:
                    self.member.forget()
            await clock.sleep(RESTART_S * rng.random() * (4 if self.member is None else 1))
        if self.member is not None:
            await self.member.leave()

    async def _work(self, producer: TransactionalProducer) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        reader = CommittedReader(self.client)
        fresh = True
        while producer.alive and not self.stopping:
            if self.member is not None:
                fresh = await self.member.rejoined() or fresh
                self.inputs = self.member.mine
            if fresh:
                await self._reposition(reader)
            fresh = not await self._step(producer, reader)
            await clock.sleep(rng.random() * 2 * self.habits.pause_s)

    async def _reposition(self, reader: CommittedReader) -> None:
        """To what is committed: where it was counts no more."""
        self.book.close(Txn("assign", "ok", self.client.name))
        generation = NO_NUMBER if self.member is None else self.member.generation
        self.book.given(self.client.name, self.group, self.inputs, generation)
        if not self.inputs:
            return
        op = Txn("position", "ok", self.client.name)
        reader.positions = await GroupPositions(self.client, self.group).observe(self.inputs, op)
        self.book.close(op)

    async def _step(self, producer: TransactionalProducer, reader: CommittedReader) -> bool:
        """Whether the reader may go on from where it is."""
        rng, clock = self.client.env.rng, self.client.env.clock
        if not self.inputs:
            await clock.sleep(IDLE_S)
            return True
        op = self.book.open(self.client.name)
        place, began_s = rng.choice(self.inputs), clock.steady()
        op.polls += await reader.poll(*place) or []
        if not op.polls:
            self._tell(place, reader.positions[place], began_s)
            await clock.sleep(IDLE_S * rng.random())
            return True

        async def work() -> None:
            await self._transform(producer, op)
            at = reader.positions[place]
            op.offsets[f"{self.group}|{key_of(*place)}"] = at
            generation, member_id = -1, ""
            if self.member is not None:
                generation, member_id = self.member.generation, self.member.member_id
            await self.habits.maybe_dawdle(self.client, self.book, op)
            await producer.send_offsets(
                self.group,
                {place: at},
                str(op.number),
                generation=generation,
                member_id=member_id,
            )
            await self.habits.maybe_dawdle(self.client, self.book, op)
            self.habits.maybe_crash(self.client)

        try:
            await self.habits.transact(producer, op, work)
        finally:
            self.book.close(op)
        self.acknowledged += op.type == "ok"
        if op.type != "ok" and self.member is not None and "offsets" in op.why:
            self.member.lost()
        return op.type == "ok"

    def _tell(self, place: Partition, at: int, began_s: float) -> None:
        """Of a look that brought nothing, once a second."""
        now_s = self.client.env.clock.steady()
        if now_s >= self._told_s + TELL_S:
            self._told_s = now_s
            op = Txn("read", "ok", self.client.name, began_s=began_s, ended_s=now_s)
            op.positions = {key_of(*place): at}
            self.book.close(op)

    async def _transform(self, producer: TransactionalProducer, op: Txn) -> None:
        """Each input becomes one output; all of one input partition go to one output partition, in order."""
        by_target: dict[Partition, list[int]] = {}
        for polled in op.polls:
            target = self.outputs[int(polled.key.rpartition("-")[2]) % len(self.outputs)]
            by_target.setdefault(target, []).append(polled.value)
        for target, values in by_target.items():
            for first in range(0, len(values), TOGETHER_MAX):
                await self.book.send(producer, op, target, values[first : first + TOGETHER_MAX])
                self.habits.maybe_crash(self.client)
