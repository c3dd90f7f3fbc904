"""The image as a group's coordinator sees it."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from fencepost.cluster.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from fencepost.cluster.metadata.image import (
    BrokerState,
    ClusterImage,
    ImageDelta,
    PartitionState,
    TopicState,
)
from fencepost.txn.groups import consumer_topics
from fencepost.txn.groups.consumer_hash import topic_hash
from fencepost.txn.groups.consumer_topics import ImageTopics, TopicHashes, topics_changed


def _image() -> ClusterImage:
    image = ClusterImage()
    image.version = 7
    for number, rack in ((1, "r1"), (2, None)):
        broker = BrokerState(BrokerId(number), BrokerEpoch(1), UUID(int=number), (), rack)
        image.brokers[broker.broker_id] = broker
    replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
    partitions = [
        PartitionState(p, BrokerId(1), LeaderEpoch(0), PartitionEpoch(0), replicas, replicas)
        for p in range(2)
    ]
    orders = TopicState("orders", UUID(int=9), partitions)
    image.topics["orders"] = image.topics_by_id[orders.topic_id] = orders
    return image


def test_a_topic_is_found_by_name_and_by_id_with_the_racks_of_its_replicas() -> None:
    topics = ImageTopics(_image())
    assert topics.version == 7
    assert topics.names() == ["orders"]
    for topic in (topics.by_name("orders"), topics.by_id(UUID(int=9))):
        assert topic is not None
        assert (topic.name, topic.topic_id, topic.partition_count) == ("orders", UUID(int=9), 2)
        assert list(topic.racks(0)) == ["r1"], "a broker without a rack, and one that is gone"
    assert topics.by_name("other") is None
    assert topics.by_id(UUID(int=1)) is None


def test_a_delta_names_the_topics_that_it_touches() -> None:
    image = _image()
    everything = topics_changed(ImageDelta.everything(image))
    assert everything is not None
    assert (everything.names, everything.any_created) == ({"orders"}, True)
    delta = ImageDelta(image)
    assert topics_changed(delta) is None
    orders = image.topics["orders"]
    delta.partitions_changed.append((orders, orders.partitions[0]))
    change = topics_changed(delta)
    assert change is not None
    assert (change.names, change.any_created) == ({"orders"}, False)


def test_a_hash_is_computed_again_when_the_topic_is_another_or_was_forgotten() -> None:
    image = _image()
    hashes = TopicHashes(ImageTopics(image))
    first = hashes.of(["orders", "missing"])
    image.brokers[BrokerId(1)] = BrokerState(
        BrokerId(1), BrokerEpoch(2), UUID(int=1), (), "elsewhere"
    )
    assert hashes.of(["orders"]) == first
    hashes.changed(["orders"])
    second = hashes.of(["orders"])
    assert second != first
    image.topics["orders"].partitions.pop()
    assert hashes.of(["orders"]) not in (first, second)
    assert hashes.of(["missing"]) == 0


def _change(image: ClusterImage, hashes: TopicHashes, **fields: Any) -> None:
    orders = image.topics["orders"]
    orders.partitions[1] = replace(orders.partitions[1], **fields)
    delta = ImageDelta(image)
    delta.partitions_changed.append((orders, orders.partitions[1]))
    change = topics_changed(delta)
    assert change is not None
    hashes.changed(change.names)


def test_a_change_of_leader_or_isr_keeps_the_hash(monkeypatch) -> None:
    """Neither is hashed, and both change whenever a broker is slow or gone."""
    computed = []

    def counted(topic: Any) -> int:
        computed.append(topic.name)
        return topic_hash(topic)

    monkeypatch.setattr(consumer_topics, "topic_hash", counted)
    image = _image()
    hashes = TopicHashes(ImageTopics(image))
    first = hashes.of(["orders"])
    _change(image, hashes, leader=BrokerId(2), leader_epoch=LeaderEpoch(1), isr=(BrokerId(2),))
    assert hashes.of(["orders"]) == first
    assert hashes.of(["orders"]) == first
    assert computed == ["orders"]
    _change(image, hashes, replicas=(BrokerId(2), BrokerId(3)))
    second = hashes.of(["orders"])
    assert second != first, "partition 1 has no replica in r1 any more"
    image.brokers[BrokerId(2)] = replace(image.brokers[BrokerId(2)], rack="r2")
    assert hashes.of(["orders"]) == second, "nobody has said that something changed"
    _change(image, hashes, isr=(BrokerId(3),))
    assert hashes.of(["orders"]) not in (first, second)
    assert len(computed) == 3


def test_a_topic_that_is_gone_is_not_remembered() -> None:
    image = _image()
    hashes = TopicHashes(ImageTopics(image))
    first = hashes.of(["orders"])
    orders = image.topics.pop("orders")
    hashes.changed(["orders", "never-seen"])
    assert hashes.of(["orders"]) == 0
    assert (hashes._known, hashes._changed) == ({}, set())
    orders.topic_id = UUID(int=10)
    image.topics["orders"] = orders
    assert hashes.of(["orders"]) not in (0, first)
