"""DescribeGroups, api key 15, versions 0-6.

Does      describes classic groups and their members.
Versions  5 static members; 6 answers GROUP_ID_NOT_FOUND.
Refuses   what the group coordinator says (`txn/groups/service.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.groups.describe_groups(ctx, request)
