"""DescribeProducers, api key 61, version 0.

Does      shows the producers that a partition remembers, with their epochs, sequences and open transactions.
Versions  0.
Refuses   NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR of one whose log can't be read.

A partition that is named more than once is described once: its producers may be 100,000, and it takes 4 bytes to name.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import TopicPartition

from ..services import HandlerContext, Services


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, **_describe(ctx.services, name, index)}
                    for index in indexes
                ],
            }
            for name, indexes in wanted.items()
        ]
    }


def _describe(services: Services, topic: str, index: int) -> dict[str, Any]:
    partition = services.replicas.partition(TopicPartition(topic, index))
    if isinstance(partition, ErrorCode):
        return {"error_code": partition, "error_message": None, "active_producers": []}
    try:
        # They are read from the disk when they are first needed.
        producers = partition.active_producers()
    except (OSError, LogDamaged) as failed:
        error = {"error_code": ErrorCode.kafka_storage_error, "error_message": str(failed)}
        return {**error, "active_producers": []}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.txn_first_offset,
            }
            for each in producers
        ],
    }
