"""DescribeTopicPartitions, api key 75, version 0.

Does      describes topics page by page, with the eligible leader replicas (KIP-966).
Versions  0.
Refuses   UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST for an impossible cursor.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import INTERNAL_TOPICS

from ..services import HandlerContext
from .metadata import NIL, describe_partition


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services, cursor = ctx.services, request.cursor
    every = not request.topics
    names = sorted(services.image.topics if every else {each.name for each in request.topics})
    if cursor is not None:
        if cursor.partition_index < 0 or not (every or cursor.topic_name in names):
            refused = ErrorCode.invalid_request
            return {"topics": [_nothing(name, refused) for name in names], "next_cursor": None}
        names = [name for name in names if name >= cursor.topic_name]
    room = max(1, min(request.response_partition_limit, services.config.max_request_partitions))
    topics: list[dict[str, Any]] = []
    next_cursor: dict[str, Any] | None = None
    for name in names:
        topic = services.image.topics.get(name)
        if topic is None:
            topics.append(_nothing(name, services.topics.why_missing(name)))
            continue
        if room <= 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        goes_on = cursor is not None and name == cursor.topic_name
        first_partition = cursor.partition_index if goes_on else 0
        page = topic.partitions[first_partition : first_partition + room]
        topics.append(
            {
                "error_code": ErrorCode.none,
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": name in INTERNAL_TOPICS,
                "partitions": [
                    {
                        **describe_partition(services, each, ctx.origin.listener),
                        "eligible_leader_replicas": each.elr,
                        "last_known_elr": (),
                    }
                    for each in page
                ],
            }
        )
        room -= len(page)
        if first_partition + len(page) < len(topic.partitions):
            next_cursor = {"topic_name": name, "partition_index": first_partition + len(page)}
            break
    return {"topics": topics, "next_cursor": next_cursor}


def _nothing(name: str, error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_id": NIL, "partitions": []}
