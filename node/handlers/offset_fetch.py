"""OffsetFetch, api key 9, versions 1-10.

Does      reads a group's positions.
Versions  7 can require stable ones; 8 several groups; 9 member epochs; 10 topic ids.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.offset_fetch(ctx, request)
