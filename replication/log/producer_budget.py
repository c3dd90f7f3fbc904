"""How many producers the partitions of one node remember together, and who is forgotten beyond that.

INVARIANT  whoever is forgotten was unseen for longer (to within TOUCH_MS) than everybody who is not, wherever on the
           node it wrote; it has no open transaction.
PREVENTS   a partition with few producers paying for one with a million: its next writer forgotten while it still
           writes, and its retry written twice.
PROVED BY  tests/replication/log/test_producer_budget.py::test_whoever_still_writes_is_not_forgotten_for_others
           tests/replication/log/test_producer_budget.py::test_the_forgotten_are_the_oldest_and_the_count_is_right
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

# Measured: 171 bytes a producer that wrote once, 330 with a full window: 330 MB at the very most.
PRODUCERS_MAX: Final = 1_000_000
ROOM_SHARE: Final = (
    256  # so many go at once. 4,000 take 3 ms; 60 ms where all wrote to 10,000 partitions
)


class Rememberer(Protocol):
    """A partition's producers (`ProducersMachine`)."""

    def __len__(self) -> int: ...
    def idle(self) -> Iterator[tuple[int, int]]:
        """When last seen, and the id; in that order, to within TOUCH_MS. Nobody whose transaction is open."""

    def forget(self, producer_ids: list[int]) -> None: ...


class ProducerBudget:
    """Of one node. `count` is what its partitions remember."""

    __slots__ = ("_places", "count", "maximum")

    def __init__(self, maximum: int = PRODUCERS_MAX) -> None:
        self.count = 0
        self.maximum = maximum
        self._places: dict[Rememberer, None] = {}  # those that remember anybody

    def add(self, place: Rememberer, count: int) -> None:
        """So many more are remembered there; others may be forgotten for that."""
        if count:
            self._places[place] = None
            self.count += count
            if self.count > self.maximum:
                self._make_room()

    def give_back(self, place: Rememberer, count: int) -> None:
        self.count -= count
        if not len(place):
            self._places.pop(place, None)

    def _make_room(self) -> None:
        wanted = self.count - self.maximum + self.maximum // ROOM_SHARE
        places = list(self._places)
        oldest = heapq.merge(*(_numbered(number, place) for number, place in enumerate(places)))
        going: dict[int, list[int]] = {}
        for _, number, producer_id in islice(oldest, wanted):
            going.setdefault(number, []).append(producer_id)
        for number, producer_ids in going.items():
            places[number].forget(producer_ids)


def _numbered(number: int, place: Rememberer) -> Iterator[tuple[int, int, int]]:
    for seen_ms, producer_id in place.idle():
        yield seen_ms, number, producer_id
