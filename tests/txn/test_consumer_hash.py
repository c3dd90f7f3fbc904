"""The vectors come from hash4j 0.22, which Kafka 4.3 uses, over bytes (31 i + 7) mod 256."""

import pytest
from consumer_world import FakeTopic
from fencepost.txn.groups.consumer_hash import group_hash, topic_hash, xxh3_64

VECTORS = {
    0: 3244421341483603138,
    1: 5502495245947142431,
    3: 1582743943441612892,
    4: -2549016526957988167,
    8: -2394039629164210130,
    9: -3754995788605292611,
    16: 9099606716676871632,
    17: 2345212530088924167,
    32: 278953543771952198,
    64: -2508381663727503547,
    65: -381843323958800864,
    97: 6981672134384256435,
    128: -492175581222641016,
    129: -506823097681485574,
    240: -3690920546649497853,
    241: 809349449570470400,
    256: -1403514104434996620,
    512: -1170120971253711958,
    1023: -1093476622474739461,
    1024: 2575082683865311686,
    1025: -4566685497618039422,
    1088: -6815162950983329211,
    1089: -9069361620296297092,
    5000: 6169931020318013678,
    12345: -7230806450090155864,
}


@pytest.mark.parametrize(("size", "expected"), VECTORS.items())
def test_the_hash_is_xxh3_at_every_length_where_its_way_changes(size: int, expected: int) -> None:
    assert xxh3_64(bytes((31 * i + 7) & 255 for i in range(size))) == expected


def test_the_hash_of_a_group_is_the_one_that_kafka_wrote(uuid_of_orders) -> None:
    """Seen in the records of a Kafka 4.3.0: one topic of two partitions, no racks."""
    orders = FakeTopic(uuid_of_orders, "orders", 2)
    assert group_hash({"orders": topic_hash(orders)}) == 3606938679143007366


@pytest.fixture
def uuid_of_orders():
    from uuid import UUID

    return UUID("6a8bcc74-44e4-4861-9b45-5385af19a867")


def test_a_topic_s_hash_changes_with_all_that_an_assignment_may_depend_on(uuid_of_orders) -> None:
    from uuid import UUID

    topics = [
        FakeTopic(uuid_of_orders, "orders", 2),
        FakeTopic(UUID(int=1), "orders", 2),
        FakeTopic(uuid_of_orders, "order", 2),
        FakeTopic(uuid_of_orders, "orders", 3),
        FakeTopic(uuid_of_orders, "orders", 2, rack="r1"),
    ]
    assert len({topic_hash(topic) for topic in topics}) == len(topics)


def test_a_group_without_topics_has_no_hash() -> None:
    assert group_hash({}) == 0


def test_the_order_in_which_topics_are_named_does_not_matter() -> None:
    assert (
        group_hash({"a": 1, "b": 2}) == group_hash({"b": 2, "a": 1}) != group_hash({"a": 2, "b": 1})
    )
