"""OffsetCommit, api key 8, versions 2-10.

Does      stores a group's positions; answers when they are committed.
Versions  6 leader epochs; 9 member epochs (KIP-848); 10 topic ids.
Refuses   what the group coordinator says (`txn/groups/service.py`); NOT_COORDINATOR, for a moment, by a connection that the member has
          given up for a newer one (`node/heard_over.py`).
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    is_late = False
    if request.member_id:
        who = request.group_id, request.member_id
        now = ctx.services.env.clock.steady()
        is_late = ctx.services.commits_heard_over.is_late(who, ctx.connection, now=now)
    return await ctx.services.groups.offset_commit(ctx, request, is_late=is_late)
