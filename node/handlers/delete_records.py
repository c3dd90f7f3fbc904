"""DeleteRecords, api key 21, versions 0-2.

Does      moves a partition's log start forward; -1 means to the high watermark. Answers the new log start, when no
          replica that is alive has anything before it.
Versions  2 flexible.
Refuses   OFFSET_OUT_OF_RANGE, POLICY_VIOLATION where the cleanup policy has no `delete`,
          INVALID_TOPIC_EXCEPTION for internal topics, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT.
"""

import asyncio
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import INTERNAL_TOPICS, Offset, TopicPartition

from ..services import HandlerContext, Services


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    deleted = [
        _delete(ctx.services, name, each.partition_index, each.offset) for name, each in asked
    ]
    # What was answered as deleted stays deleted after a crash (on a disk that takes the checkpoint).
    await ctx.services.replicas.rounds.checkpoint()
    # And after an election: no replica that is alive has it any more.
    end = ctx.services.env.clock.steady() + max(request.timeout.total_seconds(), 0)
    answers: dict[str, list[dict[str, Any]]] = {topic.name: [] for topic in request.topics}
    for (name, each), offset in zip(asked, deleted, strict=True):
        outcome = offset
        if not isinstance(offset, ErrorCode):
            outcome = await _everywhere(ctx.services, name, each.partition_index, offset, end)
        refused = isinstance(outcome, ErrorCode)
        answers[name].append(
            {
                "partition_index": each.partition_index,
                "low_watermark": -1 if refused else outcome,
                "error_code": outcome if refused else ErrorCode.none,
            }
        )
    return {"topics": [{"name": name, "partitions": each} for name, each in answers.items()]}


def _delete(services: Services, topic: str, index: int, before: int) -> Offset | ErrorCode:
    if topic in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception
    partition = services.replicas.partition(TopicPartition(topic, index))
    if isinstance(partition, ErrorCode):
        return partition
    return partition.delete_records(Offset(before))


async def _everywhere(
    services: Services, topic: str, index: int, offset: Offset, end: float
) -> Offset | ErrorCode:
    """Wait, within the client's time, until the followers have deleted it, too (Kafka's DelayedDeleteRecords)."""
    partition = services.replicas.partition(TopicPartition(topic, index))
    if isinstance(partition, ErrorCode):
        return partition
    try:
        async with asyncio.timeout(max(end - services.env.clock.steady(), 0)):
            error = await partition.deleted(offset)
    except TimeoutError:
        return ErrorCode.request_timed_out
    return offset if error is ErrorCode.none else error
