"""OffsetDelete, api key 47, versions 0.

Does      forgets a group's positions on topics that it no longer reads.
Versions  0.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.offset_delete(ctx, request)
