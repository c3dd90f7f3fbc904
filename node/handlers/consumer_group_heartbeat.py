"""ConsumerGroupHeartbeat, api key 68, versions 0-1.

Does      all that a member of the new protocol says and hears (KIP-848).
Versions  1 regular expressions, and member ids made by clients.
Refuses   UNSUPPORTED_VERSION while `group.version` is 0; what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    if ctx.services.image.features.get("group.version", 0) < 1:
        why = "The new protocol of groups is switched off: group.version is 0."
        return {"error_code": ErrorCode.unsupported_version, "error_message": why}
    return await ctx.services.groups.consumer_group_heartbeat(ctx, request)
