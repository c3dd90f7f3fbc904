"""UnregisterBroker, api key 64, version 0.

Does      takes a broker that is gone for good off the list of brokers.
Versions  0.
Refuses   BROKER_ID_NOT_REGISTERED; INVALID_REQUEST for one that votes, is alive, or is the last that has something.
"""

from datetime import timedelta
from typing import Any, Final

from fencepost.cluster.controller.commands import UnregisterBroker

from ..controller_calls import ask_controller, trouble_code
from ..services import HandlerContext

# The request has no time of its own: Kafka takes its request.timeout.ms.
WITHIN: Final = timedelta(seconds=30)


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    command = UnregisterBroker(broker_id=request.broker_id)
    result, trouble = await ask_controller(ctx.services, command, WITHIN)
    if result is None:
        return {"error_code": trouble_code(trouble), "error_message": str(trouble)}
    return {"error_code": result.error_code, "error_message": result.error_message or ""}
