"""Long work on the loop, in pieces: one piece at a turn of the loop, however many have such work to do.

INVARIANT  between two pieces of work that go through one `Pace`, everything else that is ready runs.
PREVENTS   fifty partitions that load at once holding up a request for fifty pieces.
PROVED BY  tests/txn/test_pace.py::test_others_run_between_any_two_pieces
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from fencepost.cluster.base.ports import Clock

A = TypeVar("A")
T = TypeVar("T")
# Of one request's questions to machines: one may make a record of 10,000 partitions longer, or tell as many positions, which
# takes 5 ms and more.
FEW: Final = 16


class Pace:
    """One on a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gate = asyncio.Lock()  # first come, first served

    async def breathe(self, rest_s: float = 0.0) -> None:
        """Call between two pieces; `rest_s` leaves the loop alone for that long."""
        async with self._gate:
            await self._clock.sleep(rest_s)


async def a_few_a_turn(
    ask: Callable[[A], Awaitable[T]], about: Sequence[A], clock: Clock
) -> list[T]:
    """What comes of each, in their order. The next begin when others have had their turn; those that wait wait together."""
    if len(about) == 1:
        return [await ask(about[0])]
    begun = []
    for at in range(0, len(about), FEW):
        begun.append(asyncio.gather(*map(ask, about[at : at + FEW])))
        if at + FEW < len(about):
            await clock.sleep(0)
    return [each for few in begun for each in await few]
