"""Metadata, api key 3, versions 0-13.

Does      tells a client where the brokers are and who leads which partition; creates a missing topic if it may.
Versions  1 null means all topics, an empty list none; 10 topic ids; 12 topics asked for by id; 13 top-level error.
Refuses   INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, LEADER_NOT_AVAILABLE,
          INVALID_REQUEST for a topic named by both.

A topic that is asked for more than once is told once, as by Kafka: 9 KB of one name would take 13 MB to answer.
"""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import INTERNAL_TOPICS, NO_LEADER
from fencepost.cluster.metadata.image import Endpoint, PartitionState, TopicState

from ..services import HandlerContext, Services

NIL = UUID(int=0)
IDS_SINCE = 12
ROWS_A_TURN: Final = 500  # topics and partitions: 5 ms


async def handle(ctx: HandlerContext, request: Any) -> dict[str, Any]:
    services = ctx.services
    await services.settled()
    wanted = request.topics
    if wanted is not None and ctx.api_version < IDS_SINCE and any(map(_names_no_topic, wanted)):
        # Versions 10 and 11 have the field and not the meaning. Kafka refuses the whole request.
        topics = [{"error_code": ErrorCode.invalid_request, "name": t.name or ""} for t in wanted]
    elif wanted is None or (ctx.api_version == 0 and not wanted):
        image = services.image
        everything = sorted(image.topics)
        # One may be deleted while others have their turn.
        found = (image.topics[name] for name in everything if name in image.topics)
        topics = await _describe(services, found, ctx.origin.listener)
    else:
        # Versions before 4 have no say in it; Kafka creates for them.
        may_create = getattr(request, "allow_auto_topic_creation", True)
        asked = list({_id_of(each) or each.name: each for each in wanted}.values())
        await _create_missing(services, asked, may_create=may_create)
        told = (_find(services, each) for each in asked)
        topics = await _describe(services, told, ctx.origin.listener)
    return {
        "brokers": brokers_of(services, ctx),
        "cluster_id": services.image.cluster_id,
        "controller_id": services.random_broker_id(),
        "topics": topics,
    }


def brokers_of(services: Services, ctx: HandlerContext) -> list[dict[str, Any]]:
    """Librdkafka needs those of a moment ago, too (`recent_brokers.py`); others would ask them, and be refused."""
    found = []
    is_librdkafka = any("rdkafka" in said for said in ctx.origin.software)
    image = services.image
    for broker in services.recent.named(image) if is_librdkafka else image.alive_brokers():
        endpoint = broker.endpoint(ctx.origin.listener)
        if endpoint is not None:
            found.append(
                {
                    "node_id": broker.broker_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "rack": broker.rack,
                }
            )
    return found


async def _create_missing(services: Services, wanted: Iterable[Any], *, may_create: bool) -> None:
    if not (may_create and services.config.auto_create_topics_enable):
        return
    missing = [
        each.name
        for each in wanted
        if getattr(each, "topic_id", None) is None
        and each.name is not None
        and each.name not in services.image.topics
    ]
    if missing:
        await services.topics.create_automatically(missing)


def _names_no_topic(wanted: Any) -> bool:
    return wanted.name is None or getattr(wanted, "topic_id", None) is not None


def _id_of(wanted: Any) -> UUID | None:
    """Java's client leaves the name empty where it gives an id: the id counts, as in Kafka."""
    topic_id = getattr(wanted, "topic_id", None)
    return None if topic_id == NIL else topic_id


def _find(services: Services, wanted: Any) -> TopicState | dict[str, Any]:
    """The topic, or what is told of one that is not there."""
    topic_id, name, image = _id_of(wanted), wanted.name, services.image
    if topic_id is not None or name is None:
        topic = image.topics_by_id.get(topic_id or NIL)
        missing, name = ErrorCode.unknown_topic_id, None
    else:
        topic = image.topics.get(name)
        missing = services.topics.why_missing(name)
    if topic is not None:
        return topic
    return {"error_code": missing, "name": name, "topic_id": topic_id or NIL, "partitions": []}


async def _describe(
    services: Services, found: Iterable[TopicState | dict[str, Any]], listener: str
) -> list[dict[str, Any]]:
    """Others have their turn every few hundred rows: 10,000 partitions would hold everybody up for 0.1 s."""
    topics, rows = [], 0
    for topic in found:
        fields = topic if isinstance(topic, dict) else _of_topic(topic)
        for partition in () if isinstance(topic, dict) else tuple(topic.partitions):
            fields["partitions"].append(describe_partition(services, partition, listener))
            rows += 1
            if rows % ROWS_A_TURN == 0:
                await services.env.clock.sleep(0)
        topics.append(fields)
        rows += 1
        if rows % ROWS_A_TURN == 0:
            await services.env.clock.sleep(0)
    return topics


def _of_topic(topic: TopicState) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [],
    }


def describe_partition(
    services: Services, partition: PartitionState, listener: str
) -> dict[str, Any]:
    leader = services.endpoint_of(partition.leader, listener)
    brokers = services.image.brokers
    offline = [
        id_
        for id_ in partition.replicas
        if id_ in partition.offline or id_ not in brokers or brokers[id_].fenced
    ]
    return {
        "error_code": ErrorCode.none if isinstance(leader, Endpoint) else leader,
        "partition_index": partition.partition,
        "leader_id": partition.leader if isinstance(leader, Endpoint) else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": offline,
    }
