"""A producer that falls asleep with batches under way: when it sends them again they may be written, committed and deleted, and
who leads by then may never have had them.

INVARIANT  each of its records is written once, also when nothing of what it wrote is left in the log.
PREVENTS   a retry of what was deleted, taken for new by a replica that has copied only what is left.
PROVED BY  tests/sim/test_sleepers.py::test_a_replica_that_is_told_of_nobody_is_seen
"""

from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import Trouble

from .cluster_client import Leader
from .cluster_stream import Batch, StreamProducer

# Of so many rounds the answers are lost, and it sleeps before it sends again.
LOST_ODDS: Final = 0.1
ASLEEP_S: Final = (0.3, 4.0)


class SleepingProducer(StreamProducer):
    """Told to stop it sleeps no more."""

    slept = 0  # so many times
    _is_tired = False

    def _take_all(self, leader: Leader, batches: Sequence[Batch], replies: Sequence[Any]) -> bool:
        if not self.stopping and self.env.rng.random() < LOST_ODDS:
            self._is_tired = True
            replies = [each if isinstance(each, BaseException) else LOST for each in replies]
        return super()._take_all(leader, batches, replies)

    async def _pause(self) -> None:
        if not self._is_tired:
            await super()._pause()
            return
        self._is_tired = False
        self.slept += 1
        await self.env.clock.sleep(self.env.rng.uniform(*ASLEEP_S))


LOST: Final = Trouble("nobody was awake to hear the answer")
