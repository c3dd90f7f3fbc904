"""AlterPartitionReassignments, api key 45, versions 0-1.

Does      has the controller move partitions, or cancel their moves; answers when the move has begun.
Versions  1 may forbid a change of the replication factor.
Refuses   INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS and what else the controller says.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import AlterReassignments, Reassignment

from ..controller_calls import ask_controller, trouble_code
from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    may_change = getattr(request, "allow_replication_factor_change", True)
    command = AlterReassignments(
        partitions=tuple(
            Reassignment(
                topic=topic.name,
                partition=each.partition_index,
                replicas=None if each.replicas is None else tuple(each.replicas),
            )
            for topic in request.topics
            for each in topic.partitions
        ),
        allow_factor_change=may_change,
    )
    results, trouble = await ask_controller(ctx.services, command, request.timeout)
    if results is None:
        return {
            "error_code": trouble_code(trouble),
            "error_message": str(trouble),
            "allow_replication_factor_change": may_change,
            "responses": [],
        }
    answered = iter(results)
    responses = [
        {"name": topic.name, "partitions": [_shown(next(answered)) for _ in topic.partitions]}
        for topic in request.topics
    ]
    return {
        "error_code": ErrorCode.none,
        "error_message": None if responses else "",  # as Kafka
        "allow_replication_factor_change": may_change,
        "responses": responses,
    }


def _shown(result: Any) -> dict[str, Any]:
    return {
        "partition_index": result.partition,
        "error_code": result.error_code,
        "error_message": result.error_message,
    }
