"""Tables: compacted topics that are written in transactions, while the cleaner works on them.

An entry is a key and what it was set to. There are few keys, some of them written all the time and some hardly ever; a tombstone takes
one away. `extra` of what is sent is the key's number, and of a tombstone the same below zero: what it is stands in a header.
The judge is `checkers/compacted.py`.
"""

from collections.abc import Sequence
from typing import Final

from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_habits import Habits
from .txn_keys import OF, Written, payload
from .txn_transactor import Transactor

KEYS: Final = 16
TOMBSTONE_ODDS: Final = 0.2
BATCHES_MAX: Final = 4
ENTRIES_MAX: Final = 3


def entry(number: int, value: int, extra: int) -> Written:
    key, what = f"key-{abs(extra)}".encode(), payload(number, value, extra)
    return Written(key, what) if extra > 0 else Written(key, None, ((OF, what),))


class TableWriter(Transactor):
    """Several entries over several partitions in one transaction, now and then one key twice."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        tables: Sequence[Partition],
        transactional_id: str,
        habits: Habits,
    ) -> None:
        super().__init__(client, book, transactional_id, habits)
        self.tables = list(tables)

    async def work(self, producer: TransactionalProducer, op: Txn) -> None:
        rng = self.client.env.rng
        for _ in range(rng.randint(1, BATCHES_MAX)):
            extras = [self._set_or_taken() for _ in range(rng.randint(1, ENTRIES_MAX))]
            await self.book.send(producer, op, rng.choice(self.tables), extras, entry)
            self.habits.maybe_crash(self.client)

    def _set_or_taken(self) -> int:
        rng = self.client.env.rng
        key = 1 + min(int(rng.expovariate(0.25)), KEYS - 1)
        return -key if rng.random() < TOMBSTONE_ODDS else key
