"""DescribeLogDirs, api key 35, versions 1-5.

Does      tells how much each partition takes on this node's disk, and what is left.
Versions  3 top-level error; 4 total and usable bytes; 5 cordoned.
Refuses   KAFKA_STORAGE_ERROR when the folder can't be read.
"""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition

from ..services import HandlerContext


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services = ctx.services
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {TopicPartition(t.topic, index) for t in request.topics for index in t.partitions}
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for partition, size in services.replicas.sizes():
        if wanted is None or partition in wanted:
            by_topic.setdefault(partition.topic, []).append(
                {
                    "partition_index": partition.partition,
                    "partition_size": size,
                    "offset_lag": 0,  # of a replica that moves between folders; there is one folder
                    "is_future_key": False,
                }
            )
    total, usable = services.replicas.disk_bytes()
    return {
        "error_code": ErrorCode.none,
        "results": [
            {
                "error_code": ErrorCode.none,
                "log_dir": services.config.log_dir,
                "topics": [
                    {"name": name, "partitions": by_topic[name]} for name in sorted(by_topic)
                ],
                "total_bytes": total,
                "usable_bytes": usable,
                "is_cordoned": False,
            }
        ],
    }
