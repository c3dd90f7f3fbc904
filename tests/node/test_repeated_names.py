"""A name that stands in a request again and again: what is told of it is told once, and others have their turn."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from fencepost.chaos.sim.clock import SimClock
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.handlers import metadata
from sim_node import SimNode, batch

E = ErrorCode
TIMES = 50
TOPIC_TYPE, BROKER_TYPE = 2, 4


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    simulated = SimNode(seed="repeated names")
    simulated.start()
    for name in ("t", "u"):
        simulated.create_topic(name, 3)
    yield simulated
    simulated.close()


def test_a_topic_that_is_asked_for_again_is_described_once(node: SimNode) -> None:
    """Kafka makes a set of them: one topic of 100 partitions 3,000 times was 9 KB, and its answer 12.6 MB."""
    names = [{"name": name} for name in ("u", "missing", "t")] * TIMES
    reply = node.ask(ApiKey.metadata, 9, topics=names, allow_auto_topic_creation=False)
    assert [each.name for each in reply.topics] == ["u", "missing", "t"]
    assert [len(each.partitions) for each in reply.topics] == [3, 0, 3]


def test_a_topic_that_is_asked_for_by_its_id_is_one_whatever_name_stands_beside_it(
    node: SimNode,
) -> None:
    ids = [node.topic_ids["t"], UUID(int=4711)] * TIMES
    asked = [{"name": f"n{place}", "topic_id": each} for place, each in enumerate(ids)]
    reply = node.ask(ApiKey.metadata, 12, topics=asked, allow_auto_topic_creation=False)
    assert [(each.name, each.error_code) for each in reply.topics] == [
        ("t", E.none),
        (None, E.unknown_topic_id),
    ]


def test_while_many_partitions_are_described_others_have_their_turn(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 partitions held everybody up for 0.09 s."""
    monkeypatch.setattr(metadata, "ROWS_A_TURN", 2)
    turns: list[float] = []
    sleep = SimClock.sleep

    async def counted(clock: SimClock, seconds: float) -> None:
        turns.append(seconds)
        await sleep(clock, seconds)

    for topics in (None, [{"name": "t"}, {"name": "u"}], [{"name": f"m{i}"} for i in range(8)]):
        turns.clear()
        with monkeypatch.context() as patch:
            patch.setattr(SimClock, "sleep", counted)
            node.ask(ApiKey.metadata, 9, topics=topics, allow_auto_topic_creation=False)
        assert turns.count(0) >= 4


def test_a_topic_that_is_deleted_while_others_are_described_is_left_out(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "ROWS_A_TURN", 1)
    node.create_topic("z")
    image = node.broker.image
    gone = image.topics["z"]
    first = metadata._of_topic

    def deleted_meanwhile(topic: Any) -> dict[str, Any]:
        image.topics.pop("z", None)
        return first(topic)

    monkeypatch.setattr(metadata, "_of_topic", deleted_meanwhile)
    try:
        reply = node.ask(ApiKey.metadata, 9, topics=None)
    finally:
        image.topics["z"] = gone
    assert [each.name for each in reply.topics] == ["t", "u"]


def test_a_resource_that_is_named_again_is_described_once_with_all_that_was_asked_for(
    node: SimNode,
) -> None:
    """One broker with its synonyms 200 times took 1.4 s."""

    def ask(*wanted: tuple[int, str, list[str] | None]) -> list[tuple[int, str, list[str]]]:
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name, keys in wanted
        ]
        reply = node.ask(ApiKey.describe_configs, resources=resources)
        return [
            (each.resource_type, each.resource_name, sorted(row.name for row in each.configs))
            for each in reply.results
        ]

    (everything,) = ask((TOPIC_TYPE, "t", None))
    one, two = "cleanup.policy", "retention.ms"
    both = [(TOPIC_TYPE, "t", [one]), (TOPIC_TYPE, "u", [one]), (TOPIC_TYPE, "t", [two])]
    assert ask(*both * TIMES) == [(TOPIC_TYPE, "t", [one, two]), (TOPIC_TYPE, "u", [one])]
    for whole in ([], None):
        some = (TOPIC_TYPE, "t", [one])
        assert ask(some, (TOPIC_TYPE, "t", whole), some) == [everything]
        assert ask((TOPIC_TYPE, "t", whole), some) == [everything]
    assert len(ask(*[(BROKER_TYPE, "1", None)] * TIMES)) == 1


def test_a_partition_that_is_named_again_tells_its_producers_once(node: SimNode) -> None:
    node.produce("t", batch(b"a", producer_id=77, producer_epoch=3, base_sequence=0))
    topics = [{"name": "t", "partition_indexes": [0, 0, 2, 0]}] * TIMES
    topics.append({"name": "u", "partition_indexes": [1]})
    reply = node.ask(ApiKey.describe_producers, topics=topics)
    told = [(each.name, [row.partition_index for row in each.partitions]) for each in reply.topics]
    assert told == [("t", [0, 2]), ("u", [1])]
    assert [len(row.active_producers) for row in reply.topics[0].partitions] == [1, 0]


def test_a_group_that_is_asked_the_same_again_tells_its_positions_once(node: SimNode) -> None:
    """Whoever is named as its member. Another question about the same group is answered, as by Kafka."""
    one = [{"name": "t", "partition_indexes": [0]}]
    two = [{"name": "t", "partition_indexes": [1]}]
    asked = [
        {"group_id": "g", "member_id": f"m{place}", "member_epoch": -1, "topics": topics}
        for place, topics in enumerate([None, one, two] * TIMES)
    ]
    node.ask(ApiKey.find_coordinator, key_type=0, coordinator_keys=["g"])
    reply = node.ask(ApiKey.offset_fetch, 9, groups=asked, require_stable=False)
    told = [
        [row.partition_index for topic in each.topics for row in topic.partitions]
        for each in reply.groups
    ]
    assert told == [[], [0], [1]]
