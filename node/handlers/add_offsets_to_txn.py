"""AddOffsetsToTxn, api key 25, versions 0-4.

Does      makes the partition that keeps a group's positions part of the open transaction.
Versions  3 flexible.
Refuses   COORDINATOR_NOT_AVAILABLE while there is no topic for positions, then what the transaction coordinator says.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    # Clients look for the group's coordinator only after this: its topic may not be there yet.
    place = await ctx.services.groups.offsets_partition_of(request.group_id)
    if isinstance(place, ErrorCode):
        return {"error_code": place}
    return await ctx.services.transactions.add_offsets_to_txn(ctx, request)
