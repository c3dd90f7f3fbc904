"""SyncGroup, api key 14, versions 0-5.

Does      hands the leader's assignment to each member; followers wait for it.
Versions  3 static members; 5 protocol type and name.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.sync_group(ctx, request)
