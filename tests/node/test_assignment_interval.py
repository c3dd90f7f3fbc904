"""group.consumer.assignment.interval.ms, set while the node runs."""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.cluster.wire.api import ApiKey
from sim_node import SimNode

BROKER, GROUP, SET = 4, 32, 0


@pytest.fixture
def node() -> Iterator[SimNode]:
    settings = {"offsets.topic.num.partitions": "1"}
    node = SimNode(
        seed="intervals", **settings, **{"group.consumer.assignment.interval.ms": "15000"}
    )
    node.start()
    node.create_topic("t", 2)
    while node.ask(ApiKey.find_coordinator, 3, key="g", key_type=0).error_code != 0:
        node.sleep(0.1)
    yield node
    node.close()


def change(node: SimNode, kind: int, resource: str, name: str, value: str) -> None:
    configs = [{"name": name, "config_operation": SET, "value": value}]
    changed = {"resource_type": kind, "resource_name": resource, "configs": configs}
    reply = node.ask(ApiKey.incremental_alter_configs, resources=[changed], validate_only=False)
    assert reply.responses[0].error_code == 0, reply


def heartbeat(node: SimNode, member: str, epoch: int, **owned: Any) -> Any:
    reply = node.ask(
        ApiKey.consumer_group_heartbeat,
        0,
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout=60_000,
        subscribed_topic_names=["t"],
        **{"topic_partitions": [], **owned},
    )
    assert reply.error_code == 0, reply
    return reply


def the_first_is_asked_to_share(node: SimNode) -> bool:
    """Whether it is told so as soon as another has joined."""
    first = heartbeat(node, "first", 0)
    heartbeat(node, "second", 0)
    owned = [{"topic_id": node.topic_ids["t"], "partitions": [0, 1]}]
    told = heartbeat(node, "first", first.member_epoch, topic_partitions=owned).assignment
    return told is not None and len(told.topic_partitions[0].partitions) == 1


def test_who_joins_waits_as_long_as_it_is_set_now(node: SimNode) -> None:
    change(node, BROKER, "", "group.consumer.assignment.interval.ms", "0")
    assert the_first_is_asked_to_share(node)


def test_what_is_set_for_a_group_comes_before_what_is_set_for_all(node: SimNode) -> None:
    change(node, BROKER, "", "group.consumer.assignment.interval.ms", "0")
    change(node, GROUP, "g", "consumer.assignment.interval.ms", "14000")
    assert not the_first_is_asked_to_share(node)
