"""What a leader's log does not have, judged by one that may have been deposed: the quorum is asked before its client is told.

INVARIANT  that a position is out of range, or where its leader epoch ended, is told only by who led the partition when it was
           judged, in the epoch in which it judged; who was deposed, or can't know, says NOT_LEADER_OR_FOLLOWER.
PREVENTS   1. A leader sleeps, or is cut off, when its log ends at 10.   2. Another leads, and a group reads and commits up to 15.
           3. A member of it begins anew, and its metadata are of the old leader.   4. That one calls 15 out of range: the consumer
           goes where auto.offset.reset says, and reads all once more, or nothing of what came since.
PROVED BY  tests/sim/test_cluster_past_the_end.py::test_a_leader_that_was_deposed_calls_nothing_out_of_range

Kafka's says what it knows. Consumers that name the leader epoch they know of are told so at once; those that name none, or have
only the old leader's metadata, are not. Nor is what a leader has deleted gone for sure: its topic may be, and the next one of that
name has records at those offsets. Records that are there need no confirming, which would be a question for each fetch: a leader
that slept while its topic was made anew serves what the old one had, until it hears of that.
"""

from collections.abc import Sequence

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER_EPOCH

from .judged import Judged, doubtful
from .services import Services


async def confirm(services: Services, judged: Sequence[Judged]) -> None:
    """Once for all parts of an answer."""
    for each in await doubtful(services, judged):
        each.part["error_code"] = ErrorCode.not_leader_or_follower
        each.part.pop("diverging_epoch", None)
        if "end_offset" in each.part:
            each.part.update(leader_epoch=NO_LEADER_EPOCH, end_offset=-1)
