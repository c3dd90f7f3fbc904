"""Long and huge transactions: hundreds of records and more, over several partitions, some near the largest that is taken.

One takes a share of its timeout that may be all of it, so it lives through faults, moves of leaders and its own end. Short ones go
beside it in the same partitions: whoever reads at read_committed is held behind the long one, and gets on when that ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_habits import Habits
from .txn_keys import padded
from .txn_transactor import Transactor

# What a batch of one padded record takes beside its padding, and some more.
AROUND: Final = 128
BATCH_MAX: Final = 60  # records


@dataclass(frozen=True, slots=True)
class Size:
    """How large a transaction is. `shares` of its timeout is how long it takes, drawn between the two."""

    records: tuple[int, ...]
    shares: tuple[float, float] = (0.0, 0.0)
    bytes_max: int = 0  # of the topic's batches: now and then one is of nearly this size
    large_odds: float = 0.15


LONG: Final = Size((200, 600, 1500), (0.2, 1.1))
SHORT: Final = Size((1, 2, 5))


class LongWriter(Transactor):
    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        places: Sequence[Partition],
        transactional_id: str,
        habits: Habits,
        size: Size,
    ) -> None:
        super().__init__(client, book, transactional_id, habits)
        self.places = list(places)
        self.size = size

    async def work(self, producer: TransactionalProducer, op: Txn) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        left = rng.choice(self.size.records)
        end_s = clock.steady() + rng.uniform(*self.size.shares) * self.habits.timeout_ms / 1000
        while left > 0:
            count = min(left, rng.randint(1, BATCH_MAX))
            if self.size.bytes_max and rng.random() < self.size.large_odds:
                made = partial(padded, size=self.size.bytes_max - AROUND)
                await self.book.send(producer, op, rng.choice(self.places), (0,), made)
            await self.book.send(producer, op, rng.choice(self.places), [0] * count)
            left -= count
            # What is left of its time is spread over what is left of it.
            left_s = max(0.0, end_s - clock.steady())
            await clock.sleep(left_s * count / (left + count) * 2 * rng.random())
