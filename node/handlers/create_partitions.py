"""CreatePartitions, api key 37, versions 0-3.

Does      has the controller add partitions to topics.
Versions  2 flexible.
Refuses   INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT and what else the controller says.
"""

from typing import Any

from fencepost.cluster.controller.commands import CreatePartitions, MorePartitions

from ..controller_calls import ask_controller, trouble_code
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    command = CreatePartitions(
        topics=tuple(
            MorePartitions(
                name=topic.name,
                count=topic.count,
                assignments=None
                if topic.assignments is None
                else tuple(tuple(each.broker_ids) for each in topic.assignments),
            )
            for topic in request.topics
        ),
        validate_only=request.validate_only,
    )
    results, trouble = await ask_controller(ctx.services, command, request.timeout)
    if results is None:
        error = {"error_code": trouble_code(trouble), "error_message": str(trouble)}
        return {"results": [{"name": topic.name, **error} for topic in request.topics]}
    return {
        "results": [
            {
                "name": result.name,
                "error_code": result.error_code,
                "error_message": result.error_message,
            }
            for result in results
        ]
    }
