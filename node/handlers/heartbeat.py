"""Heartbeat, api key 12, versions 0-4.

Does      keeps a member's session, and tells it of a rebalance.
Versions  3 static members.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.heartbeat(ctx, request)
