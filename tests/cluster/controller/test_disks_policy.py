"""A broker that comes back with another disk than it had."""

from typing import Any
from uuid import UUID

import pytest
from controller_scene import Scene, wish
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, TopicPartition
from fencepost.cluster.controller.commands import (
    AlterConfigs,
    BrokerHeartbeat,
    ConfigChange,
    ConfigOperation,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    FailedReplica,
    NewTopic,
    ResourceChange,
    UnregisterBroker,
)
from fencepost.cluster.controller.disks_policy import NOBODYS
from fencepost.cluster.metadata.image import NO_DISK, ClusterImage, ConfigType
from fencepost.cluster.metadata.offline import why_offline
from fencepost.cluster.metadata.snapshot import read_snapshot, write_snapshot

OLD, NEW, THIRD = (UUID(int=number) for number in (101, 102, 103))


def three(*isr: int) -> Scene:
    """Broker 1 has the disk OLD and leads t-0; the others have left its ISR, but for those named."""
    scene = Scene(brokers=0)
    for broker_id in (1, 2, 3):
        scene.register(broker_id, disk=OLD if broker_id == 1 else UUID(int=broker_id))
    _create(scene, "t", [1, 2, 3])
    for broker_id in (2, 3):
        if broker_id not in isr:
            scene.register(broker_id, disk=UUID(int=broker_id), fenced=True, lacking=None)
    assert scene.partition().isr == (1, *isr)
    return scene


def _create(scene: Scene, name: str, replicas: list[int]) -> None:
    topic = NewTopic(name=name, assignments=((0, tuple(replicas)),))
    scene.when(CreateTopics(topics=(topic,)))


def come(scene: Scene, disk: UUID, broker_id: int = 1, **other: Any) -> None:
    scene.register(broker_id, disk=disk, fenced=True, **other)
    beat = BrokerHeartbeat(
        broker_id=broker_id,
        broker_epoch=scene.epoch(broker_id),
        image_version=scene.image.version,
    )
    scene.when(beat)


def _minimum(scene: Scene, value: str, topic: str = "t") -> None:
    setting = ConfigChange(name="min.insync.replicas", operation=ConfigOperation.SET, value=value)
    change = ResourceChange(resource_type=ConfigType.TOPIC, name=topic, changes=(setting,))
    (result,) = scene.when(AlterConfigs(resources=(change,)))
    assert result.error_code is ErrorCode.none


def test_the_last_in_sync_does_not_lead_from_another_disk() -> None:
    """CPU, memory and id are the same, the disk is empty: what was committed is on the old one alone."""
    scene = three()
    for _ in range(2):  # nor after another restart
        come(scene, NEW)
        now = scene.partition()
        assert (now.leader, now.isr, now.offline) == (NO_LEADER, (1,), (1,))
    why = why_offline(scene.image, TopicPartition("t", 0))
    assert why is not None
    assert f"another disk than the one that has it (directory.id={OLD})" in why
    assert "Give back the disk of node 1 and start it again." in why
    come(scene, OLD)
    now = scene.partition()
    assert (now.leader, now.isr, now.offline) == (1, (1,), ())
    assert scene.image.brokers[1].waits_for_disk == NO_DISK


def test_a_lower_minimum_does_not_have_the_last_in_sync_lead_from_another_disk() -> None:
    """It is what a person does where replicas are missing."""
    scene = three()
    _minimum(scene, "2")
    come(scene, NEW)
    _minimum(scene, "1")
    assert scene.partition().offline == (1,)
    come(scene, UUID(int=2), 2)  # for which the partition is looked at again
    now = scene.partition()
    assert (now.leader, now.isr, now.offline) == (NO_LEADER, (1,), (1,))


def test_the_last_in_sync_is_not_forgotten_with_its_disk() -> None:
    """A machine is lost, and its number taken off the list and given to a new one: that would lead from an empty disk."""
    scene = three()
    scene.register(1, disk=OLD, fenced=True)
    refused = scene.when(UnregisterBroker(broker_id=1))
    assert refused.error_code is ErrorCode.invalid_request
    assert "Broker 1 is the last that has all of t-0." in refused.error_message
    come(scene, NEW)
    assert scene.partition().leader == NO_LEADER
    come(scene, UUID(int=2), 2)
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),)))
    assert scene.partition().leader == 2, "a person has given up what only broker 1 had"
    scene.register(1, disk=NEW, fenced=True)
    assert scene.when(UnregisterBroker(broker_id=1)).error_code is ErrorCode.none


def test_who_is_taken_off_the_list_is_eligible_no_more() -> None:
    """Its disk's name goes with it: an older disk of that number would lead with what it had long ago."""
    scene = three(2)
    _minimum(scene, "2")
    scene.register(2, disk=UUID(int=2), fenced=True)
    now = scene.partition()
    assert (now.isr, now.elr) == ((1,), (2,))
    assert scene.when(UnregisterBroker(broker_id=2)).error_code is ErrorCode.none
    assert scene.partition().elr == ()
    come(scene, THIRD, 2)
    scene.register(1, disk=OLD, fenced=True)
    assert scene.partition().leader == NO_LEADER


def test_another_disk_is_out_of_sync_where_others_have_everything() -> None:
    scene = three(2)
    come(scene, NEW)
    now = scene.partition()
    assert (now.leader, now.isr, now.elr, now.offline) == (2, (2,), (), ())
    assert scene.image.brokers[1].disk == NEW


def test_what_was_made_on_the_new_disk_is_led_from_there() -> None:
    scene = three()
    come(scene, NEW)
    _create(scene, "u", [1])
    come(scene, NEW)
    assert scene.partition("u").leader == 1
    assert scene.partition("t").leader == NO_LEADER
    come(scene, OLD)
    assert scene.partition("u").leader == NO_LEADER
    assert scene.partition("t").leader == 1


def test_partitions_on_two_lost_disks_wait_for_neither_to_be_taken_for_the_other() -> None:
    scene = three()
    come(scene, NEW)
    _create(scene, "u", [1])
    come(scene, THIRD)
    assert scene.image.brokers[1].waits_for_disk == NOBODYS
    for disk in (OLD, NEW, THIRD):
        come(scene, disk)
        assert {scene.partition(each).leader for each in "tu"} == {NO_LEADER}


def test_a_person_may_give_the_old_disk_up() -> None:
    scene = three()
    come(scene, NEW)
    scene.register(2, disk=UUID(int=2))
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),)))
    assert scene.partition().leader == 2
    come(scene, NEW)
    now = scene.partition()
    assert (now.isr, now.offline) == ((2,), ())
    assert scene.image.brokers[1].waits_for_disk == NO_DISK


@pytest.mark.parametrize("partitions", [(("t", 0),), None])
def test_who_waited_for_the_disk_that_was_given_up_follows_at_once(partitions: Any) -> None:
    """Its node lives and copies the partition, empty as it is: else it would be counted out until somebody starts it again."""
    scene = three()
    come(scene, NEW)
    scene.register(2, disk=UUID(int=2))
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=partitions))
    now = scene.partition()
    assert (now.leader, now.isr, now.offline) == (2, (2,), ())
    assert wish(scene, 2, 1, broker=2).error_code is ErrorCode.none
    come(scene, OLD)  # which lacks what 2 wrote: it has to copy that anew
    now = scene.partition()
    assert (now.leader, now.isr, now.elr) == (2, (2,), ())


def test_a_log_that_failed_is_counted_out_though_another_disk_is_given_up() -> None:
    """Broker 1 waits for its old disk with t; what failed on the new one stays marked there."""
    scene = three()
    come(scene, NEW)
    scene.register(2, disk=UUID(int=2))
    scene.register(3, disk=UUID(int=3))
    _create(scene, "y", [1, 2, 3])
    _fail(scene, "y")
    wish(scene, 2, broker=2, topic="y")
    scene.register(2, disk=UUID(int=2), fenced=True)
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("y", 0),)))
    now = scene.partition("y")
    assert (now.leader, now.isr, now.offline) == (3, (3,), (1,))
    refused = wish(scene, 3, 1, broker=3, topic="y")
    assert refused.error_message == (
        "Broker 1 is without its log of this partition, which failed, or is on a disk that it does not have;"
        " it has to be started again."
    )


def test_a_person_may_have_the_last_replica_begin_anew() -> None:
    """Nobody else is alive, or there never was anybody else: else the topic could only be deleted."""
    scene = three()
    _create(scene, "u", [1])
    come(scene, NEW)
    why = why_offline(scene.image, TopicPartition("u", 0))
    assert why is not None
    assert "`fencepost partition recover u 0 --accept-data-loss`" in why
    for broker_id in (2, 3):
        scene.register(broker_id, disk=UUID(int=broker_id), fenced=True)
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=None))
    assert {scene.partition(each).leader for each in "tu"} == {NO_LEADER}, "it was not named"
    for name in "tu":
        scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=((name, 0),)))
        now = scene.partition(name)
        assert (now.leader, now.isr, now.elr, now.offline) == (1, (1,), (), ())
    come(scene, NEW)
    assert {scene.partition(each).leader for each in "tu"} == {1}
    come(scene, OLD)  # which is older than what was begun anew
    assert {scene.partition(each).leader for each in "tu"} == {NO_LEADER}


def test_nothing_is_begun_anew_where_somebody_who_is_down_has_everything() -> None:
    """1. Broker 1 has another disk, because t waits for the old one. 2. On that its log of y fails, 2 has all of it and
    leads. 3. 2 goes down for a moment, and a person asks for the partition."""
    scene = three()
    come(scene, NEW)
    scene.register(2, disk=UUID(int=2))
    _create(scene, "y", [1, 2])
    _fail(scene, "y")
    assert (scene.partition("y").leader, scene.partition("y").isr) == (2, (2,))
    scene.register(2, disk=UUID(int=2), fenced=True)
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("y", 0),)))
    now = scene.partition("y")
    assert (now.leader, now.isr) == (NO_LEADER, (2,))


def _failed(scene: Scene, name: str, *, may_lack: bool = True) -> FailedReplica:
    topic_id = scene.image.topics[name].topic_id
    return FailedReplica(topic_id=topic_id, partition=0, may_lack=may_lack)


def _fail(scene: Scene, name: str, *, may_lack: bool = True) -> Any:
    """Its log on broker 1."""
    beat = BrokerHeartbeat(
        broker_id=1,
        broker_epoch=scene.epoch(),
        image_version=scene.image.version,
        failed=(_failed(scene, name, may_lack=may_lack),),
    )
    return scene.when(beat)


def test_a_log_that_failed_is_not_begun_anew() -> None:
    scene = three()
    come(scene, OLD)
    _fail(scene, "t")
    assert scene.partition().offline == (1,)
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),)))
    assert scene.partition().leader == NO_LEADER


def test_a_disk_that_an_older_build_did_not_name_is_believed_once() -> None:
    scene = three()
    come(scene, NO_DISK)
    come(scene, NEW)
    assert scene.partition().leader == 1
    come(scene, THIRD)
    assert scene.partition().leader == NO_LEADER


def test_a_snapshot_keeps_the_disks() -> None:
    scene = three()
    come(scene, NEW)
    image = ClusterImage()
    read_snapshot(write_snapshot(scene.image), image)
    assert image.brokers == scene.image.brokers


def test_a_log_that_failed_on_the_new_disk_is_not_led_from_the_old_one() -> None:
    """1. t waits for the old disk. 2. u is made on the new one, written to, and its log fails: it is marked like t. 3. The old
    disk is given back, which never had u: the broker would lead it from offset 0."""
    scene = three()
    come(scene, NEW)
    _create(scene, "u", [1])
    told = _fail(scene, "u")
    if told.error_code is ErrorCode.stale_broker_epoch:  # as a broker does that hears it
        come(scene, NEW, failed=(_failed(scene, "u"),))
    assert scene.partition("u").offline == (1,)
    for disk in (OLD, NEW):
        come(scene, disk)
        assert scene.partition("u").leader == NO_LEADER, disk
        assert scene.partition("t").leader == NO_LEADER, disk


def test_a_log_that_is_found_failed_on_the_new_disk_is_not_led_from_the_old_one() -> None:
    """The same, told by the registration."""
    scene = three()
    come(scene, NEW)
    _create(scene, "u", [1])
    come(scene, NEW, failed=(_failed(scene, "u"),))
    come(scene, OLD)
    assert scene.partition("u").leader == NO_LEADER


def test_who_lost_a_log_on_the_new_disk_is_not_eligible_with_the_old_one() -> None:
    """As long as one that is in sync lives nobody notices. It dies, and the other one has another disk than it was eligible by."""
    scene = three()
    come(scene, NEW)
    come(scene, UUID(int=2), 2)
    _create(scene, "u", [1, 2])
    _minimum(scene, "2", "u")
    _fail(scene, "u", may_lack=False)
    now = scene.partition("u")
    assert (now.leader, now.isr, now.elr) == (2, (2,), (1,))
    come(scene, OLD)
    scene.register(2, disk=UUID(int=2), fenced=True)
    assert scene.partition("u").leader == NO_LEADER
    assert scene.partition("t").leader == 1, "t has waited for this one"


def test_a_log_that_failed_when_nothing_waits_any_more_comes_back_with_its_own_disk() -> None:
    """t has been given up, and u is where it was: the broker is started again, and its log can be read."""
    scene = three()
    come(scene, NEW)
    _create(scene, "u", [1])
    come(scene, UUID(int=2), 2)
    scene.when(ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),)))
    _fail(scene, "u")
    come(scene, NEW, failed=(_failed(scene, "u"),))
    assert scene.partition("u").leader == NO_LEADER
    come(scene, NEW)
    assert (scene.partition("u").leader, scene.partition("t").leader) == (1, 2)
