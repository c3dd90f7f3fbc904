"""While a node of an older build is registered, what is written is what it reads."""

from typing import Any
from uuid import UUID

import msgpack
import pytest
from controller_scene import LEVELS, Scene
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    CreateTopics,
    FailedReplica,
    FeatureUpdate,
    NewTopic,
    UnregisterBroker,
    UpdateFeatures,
)
from fencepost.cluster.controller.features_policy import UpgradeType
from fencepost.cluster.metadata.image import NO_DISK
from fencepost.cluster.metadata.records import BrokerRegistered, PartitionsChanged

OLD = {**LEVELS, "metadata.version": (1, 1)}
NEW = {**LEVELS, "metadata.version": (1, 3)}
DISK = UUID(int=77)


def versions(entry: bytes) -> list[tuple[int, int]]:
    """Number and version of each command, as they lie in the log."""
    return [(number, version) for number, version, _ in msgpack.unpackb(entry)]


def written(scene: Scene, command: Any, since: int = 0) -> set[int]:
    found = (each for entry in scene.quorum.proposed[since:] for each in versions(entry))
    return {version for number, version in found if number == command.TYPE}


def mixed() -> Scene:
    """Broker 1 is of the first build, 2 and 3 are of today's; t-0 is on all of them, and 1 leads it."""
    scene = Scene(brokers=0)
    scene.register(1, features=OLD)
    for broker_id in (2, 3):
        scene.register(broker_id, features=NEW, disk=UUID(int=broker_id))
    topic = NewTopic(name="t", assignments=((0, (1, 2, 3)),))
    scene.when(CreateTopics(topics=(topic,)))
    return scene


def test_an_older_node_can_read_all_that_is_written_while_it_is_registered() -> None:
    """The first new node that led ended all older ones, two of three: the cluster was down in the middle of its upgrade."""
    scene = mixed()
    scene.register(1, features=OLD, fenced=True)
    scene.register(3, features=NEW, disk=UUID(int=3), fenced=True)
    assert (scene.partition().leader, scene.partition().isr) == (2, (2,))
    assert written(scene, BrokerRegistered) == {1}
    assert written(scene, PartitionsChanged) == {1}


def test_the_last_one_that_is_upgraded_ends_that() -> None:
    scene = mixed()
    before = len(scene.quorum.proposed)
    scene.register(1, features=NEW, disk=DISK)
    assert written(scene, BrokerRegistered, before) == {2}
    assert scene.image.brokers[1].disk == DISK
    scene.register(2, features=NEW, disk=UUID(int=2))
    assert scene.image.brokers[2].disk == UUID(int=2)


def test_one_that_is_gone_for_good_holds_the_others_back_until_it_is_forgotten() -> None:
    scene = mixed()
    scene.register(1, features=OLD, fenced=True)
    told = [fields for event, fields in scene.log if event == "metadata_level"]
    assert told[-1] == {
        "level": 1,
        "newest": 3,
        "held_by": [1],
        "cause": "nodes [1] read no more; upgrade them, and `fencepost node forget` those that are gone for good",
    }
    scene.when(UnregisterBroker(broker_id=1))
    before = len(scene.quorum.proposed)
    scene.register(2, features=NEW, disk=UUID(int=2))
    assert written(scene, BrokerRegistered, before) == {2}
    told = [fields for event, fields in scene.log if event == "metadata_level"]
    assert (told[-1]["level"], told[-1]["held_by"]) == (3, [])
    assert len(told) == 2, "a line when it changes"


def test_a_cluster_that_begins_with_todays_build_writes_todays_versions_at_once() -> None:
    scene = Scene(brokers=0)
    scene.register(1, features=NEW, disk=DISK)
    assert written(scene, BrokerRegistered) == {2}
    assert scene.image.brokers[1].disk == DISK


def test_a_broker_of_a_build_that_named_its_disk_and_no_level_reads_what_names_disks() -> None:
    """Builds before told level 1 whatever they read. Their clusters would forget whose disk is which while they are upgraded."""
    scene = Scene(brokers=0)
    for broker_id in (1, 2):
        scene.register(broker_id, features=OLD, disk=UUID(int=broker_id))
    scene.register(1, features=NEW, disk=UUID(int=1))
    scene.register(2, features=OLD, disk=UUID(int=2))
    assert written(scene, BrokerRegistered) == {2}
    assert [scene.image.brokers[each].disk.int for each in (1, 2)] == [1, 2]


def test_a_build_that_can_not_read_what_is_written_is_refused_by_what_it_needs() -> None:
    scene = mixed()
    scene.register(1, features=NEW, disk=DISK)
    refused = scene.register(1, features=OLD)
    assert refused.error_code is ErrorCode.unsupported_version
    assert refused.error_message == (
        "Unable to register because the broker does not support finalized version 3 of metadata.version. "
        "The broker wants a version between 1 and 1, inclusive."
    )
    assert scene.image.brokers[1].disk == DISK


def test_a_log_that_failed_hands_over_its_lead_though_older_nodes_know_no_mark_for_it() -> None:
    """And only once: without the mark each heartbeat names it again."""
    scene = mixed()
    scene.register(1, features=OLD)
    scene.register(2, features=NEW, disk=UUID(int=2))
    scene.register(1, features=OLD, fenced=True)
    assert scene.partition().leader == 2
    failed = FailedReplica(topic_id=scene.image.topics["t"].topic_id, partition=0, may_lack=False)
    sizes = []
    for _ in range(3):
        scene.when(
            BrokerHeartbeat(
                broker_id=2,
                broker_epoch=scene.epoch(2),
                image_version=scene.image.version,
                failed=(failed,),
            )
        )
        sizes.append(len(scene.quorum.proposed))
    now = scene.partition()
    assert (now.leader, now.isr, now.offline) == (3, (3,), ())
    assert len(set(sizes)) == 1, "said again and again"
    assert written(scene, PartitionsChanged) == {1}


def test_a_log_that_failed_before_its_broker_came_is_led_by_another_one() -> None:
    scene = mixed()
    failed = FailedReplica(topic_id=scene.image.topics["t"].topic_id, partition=0, may_lack=True)
    scene.register(2, features=NEW, disk=UUID(int=2), failed=(failed,))
    now = scene.partition()
    assert (now.leader, now.isr, now.offline) == (1, (1, 3), ())
    assert written(scene, PartitionsChanged) == {1}


def test_marks_that_are_in_the_log_already_stay() -> None:
    """A build that wrote all it knew has led: whoever lives has read it, and a replica without its log must not lead."""
    scene = Scene(brokers=0)
    for broker_id in (1, 2, 3):
        scene.register(broker_id, features=NEW)
    topic = NewTopic(name="t", assignments=((0, (1, 2, 3)),))
    scene.when(CreateTopics(topics=(topic,)))
    failed = FailedReplica(topic_id=scene.image.topics["t"].topic_id, partition=0, may_lack=False)
    scene.register(2, features=NEW, failed=(failed,))
    assert scene.partition().offline == (2,)
    scene.image.brokers[3] = type(scene.image.brokers[3])(
        broker_id=3,
        broker_epoch=scene.epoch(3),
        incarnation_id=UUID(int=3),
        endpoints=(),
        features=OLD,
    )
    scene.register(1, features=NEW, fenced=True)
    assert scene.partition().offline == (2,)
    assert scene.image.brokers[1].disk == NO_DISK


@pytest.mark.parametrize(("level", "why"), [(1, "lowered"), (4, "only supports versions 1-3")])
def test_nobody_sets_the_level_by_hand(level: int, why: str) -> None:
    scene = Scene(brokers=0)
    scene.register(1, features=NEW, disk=DISK)

    def ask(to: int, kind: UpgradeType) -> Any:
        update = FeatureUpdate(name="metadata.version", level=to, upgrade_type=kind)
        return scene.when(UpdateFeatures(updates=(update,)))

    kind = UpgradeType.SAFE_DOWNGRADE if level < 3 else UpgradeType.UPGRADE
    refused = ask(level, kind)
    assert refused.error_code is ErrorCode.invalid_update_version
    assert why in refused.error_message
    assert ask(3, UpgradeType.UPGRADE).error_code is ErrorCode.none
    assert "metadata.version" not in scene.image.features
