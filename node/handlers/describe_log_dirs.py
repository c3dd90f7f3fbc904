"""DescribeLogDirs, api key 35, versions 1-5.

Does      tells how much each partition takes on this node's disk, and what is left.
Versions  3 top-level error; 4 total and usable bytes; 5 cordoned.
Refuses   KAFKA_STORAGE_ERROR of a partition whose log can't be used.

Kafka's unit of failure is a folder of logs, this node's a single log: one that failed is told as a folder of its own. So is
a disk that this node had, and has another one instead, by its id: with the partitions that wait for it.
"""

from collections.abc import Iterator
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.metadata.image import NO_DISK
from fencepost.cluster.metadata.offline import LOST_DISK, complete_replicas

from ..services import HandlerContext, Services

UNKNOWN: Final = -1


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
            },
            *(
                _failed(services, name)
                for name in services.replicas.offline
                if wanted is None or name in wanted
            ),
            *(
                _failed(services, name, folder)
                for folder, name in _on_lost_disk(services)
                if wanted is None or name in wanted
            ),
        ],
    }


def _on_lost_disk(services: Services) -> Iterator[tuple[str, TopicPartition]]:
    me = services.image.brokers.get(services.config.node_id)
    if me is None or me.waits_for_disk == NO_DISK:
        return
    for topic in services.image.topics.values():
        for now in topic.partitions:
            name = TopicPartition(topic.name, now.partition)
            waits = me.broker_id in now.offline and set(complete_replicas(now)) == {me.broker_id}
            if waits and name not in services.replicas.offline:
                yield f"{LOST_DISK}{me.waits_for_disk}", name


def _failed(services: Services, name: TopicPartition, folder: str = "") -> dict[str, Any]:
    nothing = {
        "partition_index": name.partition,
        "partition_size": UNKNOWN,
        "offset_lag": UNKNOWN,
        "is_future_key": False,
    }
    return {
        "error_code": ErrorCode.kafka_storage_error,
        "log_dir": folder or services.replicas.folder_of(name),
        "topics": [{"name": name.topic, "partitions": [nothing]}],
        "total_bytes": UNKNOWN,
        "usable_bytes": UNKNOWN,
        "is_cordoned": False,
    }
