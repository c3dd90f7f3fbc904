"""ConsumerGroupHeartbeat, api key 68, versions 0-1.

Does      all that a member of the new protocol says and hears (KIP-848).
Versions  1 regular expressions, and member ids made by clients.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.consumer_group_heartbeat(ctx, request)
