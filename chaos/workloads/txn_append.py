"""Jepsen's kafka workload: sends of rising numbers and polls, mixed in transactions, with the positions in the transaction.

Each process has a producer and a consumer of its own, and a group of its own whose positions its transactions commit. Now and
then it assigns itself other partitions. After everything that is not `ok` the consumer goes back to where it was; a
process that is told that it is fenced, or that crashes, comes back with another transactional id.

Jepsen's other way is to subscribe: all processes are members of one group, which gives each its partitions, and takes them away in
the middle of a transaction. Then positions are sent with the group's generation, and all polls are in transactions.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ..checkers.observations import Told
from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .group_member import GroupMember
from .txn_answers import Abortable, Fenced, Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_habits import RESTART_S, Crashed, Habits
from .txn_keys import key_of
from .txn_reader import CommittedReader, GroupPositions

MOPS_MAX: Final = 4
ASSIGN_ODDS: Final = 0.05
READ_ODDS: Final = 0.2
LEAVE_ODDS: Final = 0.01
SHARED_GROUP: Final = "lists"


class AppendProcess:
    """One of Jepsen's processes; `life` counts its incarnations."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        keys: Sequence[Partition],
        habits: Habits,
        told: Callable[[Told], None],
        *,
        member: GroupMember | None = None,
    ) -> None:
        self.client = client
        self.book = book
        self.keys = list(keys)
        self.habits = habits
        self.member = member
        self.stopping = False
        self.acknowledged = 0
        self.life = 0
        self.groups: list[str] = [] if member is None else [member.group]
        self.producers: list[TransactionalProducer] = []
        self._told = told
        self._assigned: list[Partition] = []

    @property
    def process(self) -> str:
        return f"{self.client.name}.{self.life}"

    @property
    def _group(self) -> str:
        return self.process if self.member is None else self.member.group

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            self.life += 1
            producer = self.habits.producer(self.client, self.process)
            self.producers.append(producer)
            try:
                await producer.init()
                if self.member is None:
                    await self._live_assigned(producer)
                else:
                    await self._live_subscribed(producer, self.member)
            except (Abortable, Fenced):
                pass
            except Crashed:
                if self.member is not None:
                    self.member.forget()
            await clock.sleep(RESTART_S * rng.random())
        if self.member is not None:
            await self.member.leave()

    async def _live_assigned(self, producer: TransactionalProducer) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        reader = CommittedReader(self.client, told=self._told)
        self.groups.append(self.process)
        positions = GroupPositions(self.client, self.process)
        self._assigned = []
        while producer.alive and not self.stopping:
            if not self._assigned or rng.random() < ASSIGN_ODDS:
                await self._assign(reader, positions)
            if rng.random() < READ_ODDS:
                await self._read(reader)
            else:
                await self._transact(producer, reader)
            await clock.sleep(rng.random() * 2 * self.habits.pause_s)

    async def _live_subscribed(self, producer: TransactionalProducer, member: GroupMember) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        reader = CommittedReader(self.client, told=self._told)
        positions = GroupPositions(self.client, member.group)
        fresh = True
        while producer.alive and not self.stopping:
            if rng.random() < LEAVE_ODDS:
                await member.leave()  # and comes back as another one
            fresh = await member.rejoined() or fresh
            if fresh:
                await self._given(member, reader, positions)
                fresh = False
            op = await self._transact(producer, reader)
            if op.type != "ok" and "offsets" in op.why:
                member.lost()  # perhaps the group has moved on
            await clock.sleep(rng.random() * 2 * self.habits.pause_s)

    async def _given(
        self, member: GroupMember, reader: CommittedReader, positions: GroupPositions
    ) -> None:
        """Partitions from the group: all begin where it has committed, also those that were ours before."""
        self._assigned = sorted(member.mine)
        self.book.close(Txn("assign", "ok", self.process))
        self.book.given(self.process, member.group, self._assigned, member.generation)
        seen = Txn("position", "ok", self.process)
        reader.positions = await positions.observe(self._assigned, seen) if self._assigned else {}
        self.book.close(seen)

    async def _assign(self, reader: CommittedReader, positions: GroupPositions) -> None:
        """What stays assigned goes on where it is; what is new starts where the group has committed."""
        before = {place: reader.positions.get(place, 0) for place in self._assigned}
        count = self.client.env.rng.randint(1, len(self.keys))
        self._assigned = sorted(self.client.env.rng.sample(self.keys, count))
        fresh = [place for place in self._assigned if place not in before]
        op = Txn("assign", "ok", self.process)
        op.positions = {key_of(*place): 0 for place in self._assigned}
        self.book.close(op)
        if fresh:
            seen = Txn("position", "ok", self.process)
            found = await positions.observe(fresh, seen)
            self.book.close(seen)
            reader.positions = {**before, **found}

    async def _read(self, reader: CommittedReader) -> None:
        clock = self.client.env.clock
        op = Txn("read", "ok", self.process, began_s=clock.steady())
        await self._poll(reader, op)
        op.ended_s = clock.steady()
        self.book.close(op)

    async def _poll(self, reader: CommittedReader, op: Txn) -> None:
        rng = self.client.env.rng
        if not self._assigned:
            return
        for place in rng.sample(self._assigned, rng.randint(1, len(self._assigned))):
            op.polls += await reader.poll(*place) or []

    async def _transact(self, producer: TransactionalProducer, reader: CommittedReader) -> Txn:
        rng = self.client.env.rng
        op = self.book.open(self.process)
        before = dict(reader.positions)

        async def work() -> None:
            for _ in range(rng.randint(1, MOPS_MAX)):
                if rng.random() < 0.5:
                    await self._poll(reader, op)
                else:
                    extras = [0] * rng.randint(1, 3)
                    await self.book.send(producer, op, rng.choice(self.keys), extras)
                self.habits.maybe_crash(self.client)
            await self.habits.maybe_touch_doomed(producer)
            polled = {
                place: at for place, at in reader.positions.items() if at != before.get(place)
            }
            if polled:
                for place, at in polled.items():
                    op.offsets[f"{self._group}|{key_of(*place)}"] = at
                generation, member_id = -1, ""
                if self.member is not None:
                    generation, member_id = self.member.generation, self.member.member_id
                    await self.habits.maybe_dawdle(
                        self.client, self.book, op
                    )  # its group may move on meanwhile
                await producer.send_offsets(
                    self._group,
                    polled,
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
            if op.type != "ok":
                reader.positions = before
        self.acknowledged += op.type == "ok"
        return op
