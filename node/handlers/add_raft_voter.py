"""AddRaftVoter, api key 80, versions 0-1.

Does      has a node that follows the metadata log vote on it, too; answers when that is committed.
Versions  1 may ask for an answer before it is committed; it gets the one after that.
Refuses   INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, DUPLICATE_VOTER, REQUEST_TIMED_OUT for one that does not follow.
          INVALID_REQUEST is for one that is not registered, too.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId

from ..services import HandlerContext
from ..voters import PEER_LISTENER


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    """A voter is a node: its directory id says nothing here. Listeners of other names than PEER are Kafka's."""
    wrong = wrong_cluster(ctx, request.cluster_id)
    if wrong is not None:
        return wrong
    if request.voter_id < 0:
        why = "Add voter request didn't include a valid voter"
        return {"error_code": ErrorCode.invalid_request, "error_message": why}
    address = next(
        ((each.host, each.port) for each in request.listeners if each.name == PEER_LISTENER), None
    )
    within_s = max(request.timeout.total_seconds(), 0)
    answer = await ctx.services.voters.add(BrokerId(request.voter_id), address, within_s)
    return {"error_code": answer.error_code, "error_message": answer.sentence or None}


def wrong_cluster(ctx: HandlerContext, cluster_id: str | None) -> dict[str, Any] | None:
    """The answer to who means another cluster, in Kafka's words."""
    mine = ctx.services.image.cluster_id
    if cluster_id is None or cluster_id == mine:
        return None
    why = f'The given id "{cluster_id}" doesn\'t match the cluster id "{mine}"'
    return {"error_code": ErrorCode.inconsistent_cluster_id, "error_message": why}
