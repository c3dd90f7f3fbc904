"""ListGroups, api key 16, versions 0-5.

Does      lists the groups that this node coordinates.
Versions  4 filters by state; 5 by type.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.list_groups(ctx, request)
