"""A reader at read_committed that follows partitions all the time, and leaves all that it was shown.

Each step in one partition is an operation of its own: where a log begins may move at any time. One that brought nothing, and
went nowhere, is told once a second.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ..checkers.observations import Told
from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Partition
from .txn_book import Book
from .txn_keys import key_of
from .txn_reader import CommittedReader

PAUSE_S: Final = 0.1
TELL_S: Final = 1.0  # that nothing was shown has to be known, too
REREAD_ODDS: Final = 0.03


class Follower:
    """`read_on` goes up to where all is stable: for the end, when nothing is broken any more. Of what may be deleted it goes on at
    the beginning that is left, and says so (`assign`). One that `rereads` begins again now and then."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        places: Sequence[Partition],
        *,
        told: Callable[[Told], None] | None = None,
        rereads: bool = False,
    ) -> None:
        self.client = client
        self.book = book
        self.places = list(places)
        self.rereads = rereads
        self.passes = 0
        self.stopping = False
        self.acknowledged = 0
        self._goes_on = False
        self._told_s: dict[Partition, float] = {}
        self.reader = CommittedReader(client, told=told, on_reset=self._begins_later)

    @property
    def name(self) -> str:
        """Who reads from the beginning again is another reader."""
        return f"{self.client.name}.{self.passes}" if self.rereads else self.client.name

    def _begins_later(self, place: Partition, _start: int) -> None:
        """Said of this one alone, since it is the log's beginning; then where it is in all."""
        self._assign([place])
        if self._goes_on:
            self._assign(self.places)

    def _assign(self, places: Sequence[Partition]) -> None:
        op = Txn("assign", "ok", self.name)
        at = self.reader.positions
        op.positions = {key_of(*place): at.get(place, 0) for place in places}
        op.begins = {**op.positions}
        self.book.close(op)

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        self._goes_on = True
        self._assign(self.places)
        while not self.stopping:
            for place in rng.sample(self.places, rng.randint(1, len(self.places))):
                await self._read(place)
            if self.rereads and rng.random() < REREAD_ODDS:
                self._begin_again()
            await clock.sleep(PAUSE_S * rng.random())

    def _begin_again(self) -> None:
        """As another reader: this one has no partitions any more."""
        self._assign([])
        self.passes += 1
        self.reader.positions.clear()
        self._assign(self.places)

    async def _read(self, place: Partition) -> bool:
        """A little further; whether somebody answered."""
        clock = self.client.env.clock
        op = Txn("read", "ok", self.name, began_s=clock.steady())
        before = self.reader.positions.get(place, 0)
        polled = await self.reader.poll(*place)
        op.polls, op.ended_s = polled or [], clock.steady()
        there = self.reader.positions[place]
        op.positions = {key_of(*place): there}
        if op.polls or there != before or op.ended_s >= self._told_s.get(place, 0.0) + TELL_S:
            self._told_s[place] = op.ended_s
            self.book.close(op)
        return polled is not None

    async def read_on(self) -> None:
        self.client.follower_odds = 0.0
        for place in self.places:
            while not (
                await self._read(place)
                and self.reader.positions[place] >= self.reader.stable[place]
            ):
                await self.client.env.clock.sleep(PAUSE_S)
