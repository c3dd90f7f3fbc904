"""What is remembered of producers that were told to try again, of so many a partition.

INVARIANT  whoever has a place keeps it for as long as its client may try; of newcomers beyond that nothing is remembered.
PREVENTS   a thousand and one producers that push each other out, so that each is told to try again from the beginning, for ever.
PROVED BY  tests/replication/test_beginnings.py::test_more_producers_than_have_a_place_keep_nobody_waiting
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

IN_FLIGHT_MAX: Final = 5  # batches that an idempotent producer may have on their way
PLACES_MAX: Final = 1_000
# So long a client's batches may be on their way: librdkafka's message.timeout.ms.
ON_THEIR_WAY_MS: Final = 300_000


class Places(Generic[T]):
    """By producer id, in the order in which they were last told."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: dict[int, tuple[int, T]] = {}

    def __bool__(self) -> bool:
        return bool(self._taken)

    def of(self, producer_id: int) -> T | None:
        taken = self._taken.get(producer_id)
        return None if taken is None else taken[1]

    def take(self, producer_id: int, what: T, now_ms: int) -> bool:
        """False: there is no place, and nobody has forgotten his."""
        if self._taken.pop(producer_id, None) is None and len(self._taken) >= PLACES_MAX:
            oldest = next(iter(self._taken))
            if now_ms - self._taken[oldest][0] < ON_THEIR_WAY_MS:
                return False
            del self._taken[oldest]
        self._taken[producer_id] = now_ms, what
        return True

    def give_up(self, producer_id: int) -> None:
        self._taken.pop(producer_id, None)

    def change(self, each: Callable[[T], T]) -> None:
        for producer_id, (at_ms, what) in self._taken.items():
            self._taken[producer_id] = at_ms, each(what)
