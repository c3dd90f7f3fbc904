"""InitProducerId, api key 22, versions 0-6.

Does      gives a producer its id: an idempotent one a new one; a transactional one that of its transactional id with
          the next epoch, which fences whoever had it and ends what that one left open.
Versions  2 flexible; 3 the producer names what it has (KIP-360); 4 PRODUCER_FENCED; 5 KIP-890; 6 two-phase commit (KIP-939).
Refuses   INVALID_REQUEST for an impossible pair of id and epoch, COORDINATOR_LOAD_IN_PROGRESS while the controller
          gives no ids, then what the transaction coordinator says.
"""

import asyncio
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

from ..services import HandlerContext

# The request has no timeout of its own. Clients give up after 30 s, and may as well ask again before.
TAKE_S_MAX: Final = 5.0


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    had_id = getattr(request, "producer_id", NO_PRODUCER_ID)
    had_epoch = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)
    impossible = (had_id == NO_PRODUCER_ID) != (had_epoch == NO_PRODUCER_EPOCH)
    if impossible:
        return _answer(ErrorCode.invalid_request, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    if request.transactional_id is not None:
        return await ctx.services.transactions.init_producer_id(ctx, request)
    # An idempotent producer that asks again always gets a new id, as from Kafka: only a transactional
    # one has a coordinator that remembers its epoch.
    try:
        async with asyncio.timeout(TAKE_S_MAX):
            taken = await ctx.services.producer_ids.take()
    except (TimeoutError, Trouble) as trouble:
        # What Kafka says while it has no block of ids; clients ask again.
        ctx.services.env.log.warn("no_producer_id", cause=str(trouble))
        return _answer(ErrorCode.coordinator_load_in_progress, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return _answer(ErrorCode.none, taken, 0)


def _answer(error: ErrorCode, producer_id: int, producer_epoch: int) -> dict[str, Any]:
    return {"error_code": error, "producer_id": producer_id, "producer_epoch": producer_epoch}
