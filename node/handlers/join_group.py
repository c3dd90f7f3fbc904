"""JoinGroup, api key 11, versions 0-9.

Does      enters a member into a group; answers when the rebalance has gathered its members.
Versions  4 asks for the member id first; 5 static members; 7 protocol type; 9 skips a static leader's assignment.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.join_group(ctx, request)
