"""DescribeQuorum, api key 55, versions 0-2.

Does      tells who votes on the metadata, who follows, and how far each of them is: what its leader knows of it.
Versions  1 times of fetches; 2 a message with each error, directories (none here), where the voters listen.
Refuses   UNKNOWN_TOPIC_OR_PARTITION for all but partition 0 of __cluster_metadata, NOT_CONTROLLER while nobody leads.
"""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import NO_LEADER, BrokerId
from fencepost.cluster.metadata.topic_names import CLUSTER_METADATA_TOPIC
from fencepost.cluster.quorum.view import QuorumView, ReplicaView

from ..controller_calls import trouble_code
from ..services import HandlerContext, Services
from ..voters import PEER_LISTENER

_UNKNOWN: Final = "This server does not host this topic-partition."


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    if not _asks_for_metadata(request):
        return {
            "error_code": ErrorCode.none,
            "topics": [_unknown(topic) for topic in request.topics],
        }
    try:
        view = await ctx.services.describe_quorum()
    except Trouble as trouble:
        return {"error_code": trouble_code(trouble), "error_message": str(trouble), "topics": []}
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "topics": [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [_partition(view)]}],
        "nodes": _nodes(ctx.services, view),
    }


def _asks_for_metadata(request: Any) -> bool:
    """As Kafka: exactly this one, or nothing is told."""
    asked = [
        (topic.topic_name, [each.partition_index for each in topic.partitions])
        for topic in request.topics
    ]
    return asked == [(CLUSTER_METADATA_TOPIC, [0])]


def _unknown(topic: Any) -> dict[str, Any]:
    refused = {"error_code": ErrorCode.unknown_topic_or_partition, "error_message": _UNKNOWN}
    return {
        "topic_name": topic.topic_name,
        "partitions": [
            {"partition_index": each.partition_index, **refused} for each in topic.partitions
        ],
    }


def _partition(view: QuorumView) -> dict[str, Any]:
    return {
        "partition_index": 0,
        "error_code": ErrorCode.none,
        "error_message": "",
        "leader_id": NO_LEADER if view.leader_id is None else view.leader_id,
        "leader_epoch": view.term,
        "high_watermark": view.high_watermark,
        "current_voters": _replicas(view.voters),
        "observers": _replicas(view.observers),
    }


def _replicas(replicas: Mapping[BrokerId, ReplicaView]) -> list[dict[str, Any]]:
    return [
        {
            "replica_id": id_,
            "log_end_offset": seen.end_offset,
            "last_fetch_timestamp": seen.last_fetch_ms,
            "last_caught_up_timestamp": seen.last_caught_up_ms,
        }
        for id_, seen in sorted(replicas.items())
    ]


def _nodes(services: Services, view: QuorumView) -> list[dict[str, Any]]:
    """The voters' peer doors, where they registered them: a node alone has none."""
    found = []
    for id_ in sorted(view.voters):
        broker = services.image.brokers.get(id_)
        endpoint = None if broker is None else broker.endpoint(PEER_LISTENER)
        if endpoint is not None:
            listener = {"name": endpoint.listener, "host": endpoint.host, "port": endpoint.port}
            found.append({"node_id": id_, "listeners": [listener]})
    return found
