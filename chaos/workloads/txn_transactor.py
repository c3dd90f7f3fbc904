"""One transactional id, one transaction after another, with the habits of all: what most workloads share."""

from abc import ABC, abstractmethod

from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Abortable, Fenced
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_habits import RESTART_S, Crashed, Habits


class Transactor(ABC):
    """`work` says what is in a transaction; whoever is fenced, or crashes, comes back with the same id."""

    def __init__(
        self, client: ClusterClient, book: Book, transactional_id: str, habits: Habits
    ) -> None:
        self.client = client
        self.book = book
        self.transactional_id = transactional_id
        self.habits = habits
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            producer = self.habits.producer(self.client, self.transactional_id)
            self.producers.append(producer)
            try:
                await producer.init()
                while producer.alive and not self.stopping:
                    await self._transact(producer)
                    await clock.sleep(rng.random() * 2 * self.habits.pause_s)
            except (Abortable, Fenced, Crashed):
                pass
            await clock.sleep(RESTART_S * rng.random())

    async def _transact(self, producer: TransactionalProducer) -> None:
        op = self.book.open(self.client.name)

        async def work() -> None:
            await self.work(producer, op)
            await self.habits.maybe_dawdle(self.client, self.book, op)
            self.habits.maybe_crash(self.client)

        try:
            await self.habits.transact(producer, op, work)
        finally:
            self.book.close(op)
        self.acknowledged += op.type == "ok"

    @abstractmethod
    async def work(self, producer: TransactionalProducer, op: Txn) -> None:
        """What is in one transaction."""
