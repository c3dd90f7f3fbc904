"""AddPartitionsToTxn, api key 24, versions 0-5.

Does      makes partitions part of the open transaction before anything is written to them; from version 4 on for
          several transactions at once, or only looks whether they are part of it (KIP-890).
Versions  3 flexible; 4 batches, for brokers and tools; 5 clients that add partitions by writing never ask.
Refuses   UNKNOWN_TOPIC_OR_PARTITION and with it OPERATION_NOT_ATTEMPTED for the rest, then what the coordinator says.
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.transactions.add_partitions_to_txn(ctx, request)
