"""Reads some partitions at read_committed from their beginning, all the while: what was written is shown to somebody."""

from collections.abc import Sequence
from typing import Final

from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Partition
from .txn_book import Book
from .txn_keys import key_of
from .txn_reader import CommittedReader

PAUSE_S: Final = 0.1
TELL_S: Final = 1.0  # that nothing was shown has to be known, too


class Onlooker:
    def __init__(self, client: ClusterClient, book: Book, places: Sequence[Partition]) -> None:
        self.client = client
        self.book = book
        self.places = list(places)
        self.stopping = False
        self.acknowledged = 0

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        reader = CommittedReader(self.client)
        begins = Txn("assign", "ok", self.client.name)
        begins.positions = {key_of(*place): 0 for place in self.places}
        self.book.close(begins)
        told_s = 0.0
        while not self.stopping:
            op = Txn("read", "ok", self.client.name, began_s=clock.steady())
            for place in rng.sample(self.places, rng.randint(1, len(self.places))):
                op.polls += await reader.poll(*place) or []
            op.ended_s = clock.steady()
            if op.polls or op.ended_s - told_s >= TELL_S:
                self.book.close(op)
                told_s = op.ended_s
            await clock.sleep(PAUSE_S * rng.random())
