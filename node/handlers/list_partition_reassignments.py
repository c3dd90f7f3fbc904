"""ListPartitionReassignments, api key 46, version 0.

Does      says which partitions are on the move, of those asked for or of all.
Versions  0.
Refuses   nothing: what is unknown or not moving is left out, as in Kafka.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.reassign_policy import moving
from fencepost.cluster.metadata.image import PartitionState

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition in moving(ctx.services.image):
        if wanted is None or (topic.name, partition.partition) in wanted:
            topics.setdefault(topic.name, []).append(_shown(partition))
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "topics": [{"name": name, "partitions": topics[name]} for name in topics],
    }


def _shown(partition: PartitionState) -> dict[str, Any]:
    return {
        "partition_index": partition.partition,
        "replicas": partition.replicas,
        "adding_replicas": partition.adding,
        "removing_replicas": partition.removing,
    }
