"""ConsumerGroupHeartbeat, api key 68, versions 0-1.

Does      all that a member of the new protocol says and hears (KIP-848).
Versions  1 regular expressions, and member ids made by clients.
Refuses   UNSUPPORTED_VERSION while `group.version` is 0; what the group coordinator says (`txn/groups/service.py`);
          NOT_COORDINATOR, once, by a connection that the member has given up for a newer one (`node/heard_over.py`).
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    if ctx.services.image.features.get("group.version", 0) < 1:
        why = "The new protocol of groups is switched off: group.version is 0."
        return {"error_code": ErrorCode.unsupported_version, "error_message": why}
    who = request.group_id, request.instance_id, request.member_id
    if request.member_id and ctx.services.members_heard_over.is_late(who, ctx.connection):
        return {"error_code": ErrorCode.not_coordinator}  # nobody reads this
    return await ctx.services.groups.consumer_group_heartbeat(ctx, request)
