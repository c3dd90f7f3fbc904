"""RemoveRaftVoter, api key 81, version 0.

Does      has a node vote on the metadata no more; it goes on as one that follows. Answers when that is committed.
Versions  0.
Refuses   INCONSISTENT_CLUSTER_ID, INVALID_REQUEST also for the only voter, VOTER_NOT_FOUND, REQUEST_TIMED_OUT.
"""

from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId

from ..services import HandlerContext
from .add_raft_voter import wrong_cluster

# The request has no time of its own: Kafka takes its request.timeout.ms.
WITHIN_S: Final = 30.0


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    wrong = wrong_cluster(ctx, request.cluster_id)
    if wrong is not None:
        return wrong
    if request.voter_id < 0:
        why = "Remove voter request didn't include a valid voter"
        return {"error_code": ErrorCode.invalid_request, "error_message": why}
    answer = await ctx.services.voters.remove(BrokerId(request.voter_id), WITHIN_S)
    return {"error_code": answer.error_code, "error_message": answer.sentence or None}
