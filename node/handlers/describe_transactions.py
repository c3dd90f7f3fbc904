"""DescribeTransactions, api key 65, version 0.

Does      shows transactions that this node coordinates: state, producer, timeout, age, partitions without a marker yet.
Versions  0.
Refuses   NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST for an empty id.
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.transactions.describe_transactions(ctx, request)
