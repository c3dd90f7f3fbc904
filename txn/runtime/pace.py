"""Long work on the loop, in pieces: one piece at a turn of the loop, however many have such work to do.

INVARIANT  between two pieces of work that go through one `Pace`, everything else that is ready runs.
PREVENTS   fifty partitions that load at once holding up a request for fifty pieces.
PROVED BY  tests/txn/test_pace.py::test_others_run_between_any_two_pieces
"""

import asyncio

from fencepost.cluster.base.ports import Clock


class Pace:
    """One on a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gate = asyncio.Lock()  # first come, first served

    async def breathe(self, rest_s: float = 0.0) -> None:
        """Call between two pieces; `rest_s` leaves the loop alone for that long."""
        async with self._gate:
            await self._clock.sleep(rest_s)
