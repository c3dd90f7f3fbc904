"""OffsetCommit, api key 8, versions 2-10.

Does      stores a group's positions; answers when they are committed.
Versions  6 leader epochs; 9 member epochs (KIP-848); 10 topic ids.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.offset_commit(ctx, request)
