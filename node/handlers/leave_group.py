"""LeaveGroup, api key 13, versions 0-5.

Does      takes members out of a group.
Versions  3 several at once, static ones by instance; 5 reasons.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.leave_group(ctx, request)
