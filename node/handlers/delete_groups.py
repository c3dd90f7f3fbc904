"""DeleteGroups, api key 42, versions 0-2.

Does      deletes empty groups with their positions.
Versions  2 flexible.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.delete_groups(ctx, request)
