"""ConsumerGroupDescribe, api key 69, versions 0-1.

Does      describes groups of the new protocol, their members and assignments.
Versions  1 member types.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.consumer_group_describe(ctx, request)
