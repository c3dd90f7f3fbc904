"""Transactions in partitions of which records are deleted on request meanwhile (DeleteRecords), and who asks for that.

Each record has a key of its own, so nothing is ever overtaken: what is not deleted is owed. (`checkers/compacted.py` judges it.)
"""

from collections.abc import Sequence
from itertools import count
from typing import ClassVar, Final

from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .deleter import Deleter
from .txn_answers import Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_habits import Habits
from .txn_transactor import Transactor

BATCHES_MAX: Final = 6
RECORDS_MAX: Final = 3
PAUSE_S: Final = 0.1  # so that deletions come in the middle of transactions


class CutWriter(Transactor):
    """`keys` are those of all writers."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        places: Sequence[Partition],
        transactional_id: str,
        habits: Habits,
        keys: "count[int]",
    ) -> None:
        super().__init__(client, book, transactional_id, habits)
        self.places = list(places)
        self._keys = keys

    async def work(self, producer: TransactionalProducer, op: Txn) -> None:
        rng = self.client.env.rng
        for _ in range(rng.randint(1, BATCHES_MAX)):
            extras = [next(self._keys) for _ in range(rng.randint(1, RECORDS_MAX))]
            await self.book.send(producer, op, rng.choice(self.places), extras)
            await self.client.env.clock.sleep(PAUSE_S * rng.random())
            self.habits.maybe_crash(self.client)


class CutDeleter(Deleter):
    """One that is a client of the transactions campaign; it commits nothing."""

    producers: ClassVar[tuple[TransactionalProducer, ...]] = ()
