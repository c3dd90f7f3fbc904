"""JoinGroup, api key 11, versions 0-9.

Does      enters a member into a group; answers when the rebalance has gathered its members.
Versions  4 asks for the member id first; 5 static members; 7 protocol type; 9 skips a static leader's assignment.
Refuses   what the group coordinator says (`txn/groups/service.py`); NOT_COORDINATOR, once, by a connection that the member has given
          up for a newer one (`node/heard_over.py`).
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    instance_id = getattr(request, "group_instance_id", None)
    who = request.group_id, instance_id, request.member_id
    # Who has no name yet takes nothing from anybody.
    is_known = bool(instance_id or request.member_id)
    if is_known and ctx.services.members_heard_over.is_late(who, ctx.connection):
        # Nobody reads this; nor that the protocol, which older versions can't leave out, is none.
        return {
            "error_code": ErrorCode.not_coordinator,
            "generation_id": -1,
            "protocol_type": None,
            "protocol_name": "",
            "leader": "",
            "skip_assignment": False,
            "member_id": request.member_id,
            "members": [],
        }
    return await ctx.services.groups.join_group(ctx, request)
