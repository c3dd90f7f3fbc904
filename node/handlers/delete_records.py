"""DeleteRecords, api key 21, versions 0-2.

Does      moves a partition's log start forward; -1 means to the high watermark. Answers the new log start.
Versions  2 flexible.
Refuses   OFFSET_OUT_OF_RANGE, POLICY_VIOLATION where the cleanup policy has no `delete`,
          INVALID_TOPIC_EXCEPTION for internal topics, NOT_LEADER_OR_FOLLOWER.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import INTERNAL_TOPICS, Offset, TopicPartition

from ..services import HandlerContext, Services


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                _delete(ctx.services, topic.name, each.partition_index, each.offset)
                for each in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    # What was answered as deleted stays deleted after a crash (on a disk that takes the checkpoint).
    await ctx.services.replicas.rounds.checkpoint()
    return {"topics": topics}


def _delete(services: Services, topic: str, index: int, before: int) -> dict[str, Any]:
    deleted: Offset | ErrorCode
    if topic in INTERNAL_TOPICS:
        deleted = ErrorCode.invalid_topic_exception
    else:
        partition = services.replicas.partition(TopicPartition(topic, index))
        if isinstance(partition, ErrorCode):
            deleted = partition
        else:
            deleted = partition.delete_records(Offset(before))
    refused = isinstance(deleted, ErrorCode)
    return {
        "partition_index": index,
        "low_watermark": -1 if refused else deleted,
        "error_code": deleted if refused else ErrorCode.none,
    }
