"""How many must be in sync is worked out from what is set, not asked of the node that is judged by it."""

from uuid import UUID

import pytest
from fencepost.chaos.campaigns.planted_table import hunt
from fencepost.chaos.sim.cluster_nodes import node_config
from fencepost.chaos.sim.needed_in_sync import NAME, needed_in_sync
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch
from fencepost.cluster.metadata.image import (
    BROKER_DEFAULT,
    ClusterImage,
    ConfigType,
    PartitionState,
    TopicState,
)

TOPIC_ID = UUID(int=1)


def image(*replicas: int, adding: int = 0) -> ClusterImage:
    made = ClusterImage()
    all_of_it, added = tuple(map(BrokerId, replicas)), (BrokerId(adding),) if adding else ()
    state = PartitionState(
        0, BrokerId(1), LeaderEpoch(1), PartitionEpoch(1), all_of_it, all_of_it, adding=added
    )
    topic = TopicState("orders", TOPIC_ID, [state])
    made.topics["orders"] = made.topics_by_id[TOPIC_ID] = topic
    return made


@pytest.mark.slow
def test_who_commits_with_fewer_in_sync_than_is_set_is_seen() -> None:
    assert hunt("min-isr-is-one").rule == "under-min-isr"


@pytest.mark.parametrize(
    ("of_all", "own", "needed"),
    [(None, None, 2), ("1", None, 1), ("3", None, 3), ("1", "3", 3), (None, "1", 1)],
)
def test_a_topic_s_own_value_goes_before_that_of_all_brokers_and_of_the_node_s_file(
    of_all: str | None, own: str | None, needed: int
) -> None:
    there = image(1, 2, 3)
    if of_all is not None:
        there.configs[ConfigType.BROKER, BROKER_DEFAULT] = {NAME: of_all}
    if own is not None:
        there.configs[ConfigType.TOPIC, "orders"] = {NAME: own}
    assert needed_in_sync(there, node_config(1, 3), TOPIC_ID, 0) == needed


def test_no_more_are_needed_than_there_are_copies_without_those_that_a_move_adds() -> None:
    assert needed_in_sync(image(1), node_config(1, 3), TOPIC_ID, 0) == 1
    assert needed_in_sync(image(1, 2, adding=2), node_config(1, 3), TOPIC_ID, 0) == 1


def test_of_a_topic_that_is_gone_nothing_is_needed() -> None:
    assert needed_in_sync(image(1), node_config(1, 3), UUID(int=2), 0) == 0
