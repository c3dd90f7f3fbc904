"""ListTransactions, api key 66, versions 0-2.

Does      lists the transactional ids that this node coordinates, by state, producer id, age and pattern.
Versions  1 those that have been open for longer than a duration (KIP-994); 2 a pattern for the id (KIP-1152).
Refuses   COORDINATOR_LOAD_IN_PROGRESS while one of its partitions is being read, INVALID_REGULAR_EXPRESSION.
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.transactions.list_transactions(ctx, request)
