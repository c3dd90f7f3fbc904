"""What a leader said of a batch or a position by its own log, and whether it was still the leader when it judged.

INVARIANT  what is not doubtful was judged by who led the partition, in the epoch in which it judged.
PREVENTS   two answers that go by different rules for who may be believed: what is out of order, and what is past the end.
PROVED BY  tests/sim/test_cluster_past_the_end.py::test_a_leader_that_was_deposed_calls_nothing_out_of_range
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from fencepost.cluster.base.ids import LeaderEpoch
from fencepost.replication.partition import Partition

from .fresh_image import ANSWER_S
from .services import Services


class Judged(NamedTuple):
    """One part of an answer that says so, and who judged."""

    part: dict[str, Any]
    partition: Partition
    leader_epoch: LeaderEpoch

    @classmethod
    def by(cls, partition: Partition, part: dict[str, Any]) -> Self:
        return cls(part, partition, LeaderEpoch(partition.leader_epoch))

    def holds(self) -> bool:
        partition = self.partition
        return (
            partition.closed is None
            and partition.is_leader
            and partition.leader_epoch == self.leader_epoch
        )


async def doubtful(services: Services, judged: Sequence[Judged]) -> list[Judged]:
    """Of all parts of an answer those that another leader may see otherwise. The quorum is asked once, if there are any at all."""
    if not judged:
        return []
    is_of_now = await services.confirm_image(ANSWER_S)
    return [each for each in judged if not (is_of_now and each.holds())]
