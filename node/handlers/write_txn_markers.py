"""WriteTxnMarkers, api key 27, versions 1-2.

Does      ends transactions in partitions led here, as a person asks who has found one that hangs (`kafka-transactions
          abort`); our own coordinators use the peer door. Answers when the markers are committed.
Versions  1 flexible; 2 the level of `transaction.version` that the transaction was begun at.
Refuses   UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
"""

from typing import Any

from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.transactions.marker_sender import Marker

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    markers = [
        Marker(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            coordinator_epoch=each.coordinator_epoch,
            commit=each.transaction_result,
            partitions=_partitions(each.topics),
            transaction_version=getattr(each, "transaction_version", 0),
        )
        for each in request.markers
    ]
    answers = await ctx.services.markers.write_here(markers)
    by_producer: dict[int, dict[str, dict[int, dict[str, Any]]]] = {}
    for marker, answer in zip(markers, answers, strict=True):
        for (topic, index), code in answer.items():
            rows = by_producer.setdefault(marker.producer_id, {}).setdefault(topic, {})
            rows[index] = {"partition_index": index, "error_code": code}
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [
                    {"name": topic, "partitions": list(rows.values())}
                    for topic, rows in topics.items()
                ],
            }
            for producer_id, topics in by_producer.items()
        ]
    }


def _partitions(topics: Any) -> tuple[TopicPartition, ...]:
    named = (
        TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes
    )
    return tuple(dict.fromkeys(named))
