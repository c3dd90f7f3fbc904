"""EndTxn, api key 26, versions 0-5.

Does      has the coordinator log the outcome; answers when that record is committed. Markers go out at once.
Versions  3 flexible; 5 answers the producer id and epoch of the next transaction (KIP-890).
Refuses   what the coordinator says.
"""

from typing import Any

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    return await ctx.services.transactions.end_txn(ctx, request)
