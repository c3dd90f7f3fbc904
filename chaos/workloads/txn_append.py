"""Jepsen's kafka workload: sends of rising numbers and polls, mixed in transactions, with the positions in the transaction.

Each process has a producer and a consumer of its own, and a group of its own whose positions its transactions commit. Now and
then it assigns itself other partitions. After everything that is not `ok` the consumer goes back to where it was; a
process that is told that it is fenced, or that crashes, comes back with another transactional id.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ..checkers.observations import Told
from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Abortable, Fenced, Partition
from .txn_bank import RESTART_S, Crashed, Habits
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_reader import CommittedReader, GroupPositions, key_of

MOPS_MAX: Final = 4
ASSIGN_ODDS: Final = 0.05
READ_ODDS: Final = 0.2


class AppendProcess:
    """One of Jepsen's processes; `life` counts its incarnations."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        keys: Sequence[Partition],
        habits: Habits,
        told: Callable[[Told], None],
    ) -> None:
        self.client = client
        self.book = book
        self.keys = list(keys)
        self.habits = habits
        self.stopping = False
        self.acknowledged = 0
        self.life = 0
        self.groups: list[str] = []
        self.producers: list[TransactionalProducer] = []
        self._told = told
        self._assigned: list[Partition] = []

    @property
    def process(self) -> str:
        return f"{self.client.name}.{self.life}"

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            self.life += 1
            producer = self.habits.producer(self.client, self.process)
            self.producers.append(producer)
            reader = CommittedReader(self.client, told=self._told)
            self.groups.append(self.process)
            positions = GroupPositions(self.client, self.process)
            self._assigned = []
            try:
                await producer.init()
                while producer.alive and not self.stopping:
                    if not self._assigned or rng.random() < ASSIGN_ODDS:
                        await self._assign(reader, positions)
                    if rng.random() < READ_ODDS:
                        await self._read(reader)
                    else:
                        await self._transact(producer, reader)
                    await clock.sleep(rng.random() * 2 * self.habits.pause_s)
            except (Abortable, Fenced, Crashed):
                pass
            await clock.sleep(RESTART_S * rng.random())

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
        for place in rng.sample(self._assigned, rng.randint(1, len(self._assigned))):
            op.polls += await reader.poll(*place) or []

    async def _transact(self, producer: TransactionalProducer, reader: CommittedReader) -> None:
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
                    op.offsets[f"{self.process}|{key_of(*place)}"] = at
                await producer.send_offsets(self.process, polled, str(op.number))
            await self.habits.maybe_dawdle(self.client)
            self.habits.maybe_crash(self.client)

        try:
            await self.habits.transact(producer, op, work)
        finally:
            self.book.close(op)
            if op.type != "ok":
                reader.positions = before
        self.acknowledged += op.type == "ok"
