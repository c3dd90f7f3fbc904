import pytest
from controller_scene import Scene, wish
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller.commands import (
    AlterPartition,
    CreateTopics,
    IsrChange,
    IsrMember,
    NewTopic,
)

E = ErrorCode


@pytest.fixture
def scene() -> Scene:
    scene = Scene(brokers=3)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2, 3)),)),)))
    return scene


def test_a_leader_shrinks_and_expands_its_isr(scene: Scene) -> None:
    shrunk = wish(scene, 1, 2)
    assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch) == (E.none, (1, 2), 1)
    assert (shrunk.leader, shrunk.leader_epoch) == (1, 0)
    grown = wish(scene, 1, 2, 3)
    assert (grown.isr, grown.partition_epoch) == ((1, 2, 3), 2)
    same = wish(scene, 1, 2, 3)
    assert (same.error_code, same.partition_epoch) == (E.none, 2)
    assert scene.partition().isr == (1, 2, 3)


def test_a_deposed_leader_changes_nothing(scene: Scene) -> None:
    scene.register(1, fenced=True)
    assert scene.partition().leader == 2
    assert wish(scene, 1, leader_epoch=0).error_code is E.fenced_leader_epoch
    assert wish(scene, 1).error_code is E.invalid_request
    assert wish(scene, 1, broker_epoch=1).error_code is E.stale_broker_epoch
    assert scene.partition().isr == (2, 3)


def test_a_wish_made_on_an_older_state_is_refused(scene: Scene) -> None:
    """Else a member that was added meanwhile would be dropped, though acknowledged writes rely on it."""
    wish(scene, 1, 2)
    assert wish(scene, 1, 3, partition_epoch=0).error_code is E.invalid_update_version
    assert wish(scene, 1, 3, partition_epoch=9).error_code is E.not_controller
    assert wish(scene, 1, 3, leader_epoch=9).error_code is E.not_controller


def test_an_isr_that_can_not_be_is_refused(scene: Scene) -> None:
    for isr in ((2, 3), (1, 4), (1, 1), ()):
        assert wish(scene, *isr).error_code is E.invalid_request, isr
    assert wish(scene, 1, partition=7).error_code is E.unknown_topic_or_partition


def test_a_replica_that_is_fenced_or_registered_anew_is_not_let_in(scene: Scene) -> None:
    """A replica that was restarted since the leader heard of it may have lost what it then had."""
    before = scene.epoch(3)
    wish(scene, 1, 2)
    scene.register(3, lacking=None)
    topic, now = scene.image.topics["t"], scene.partition()
    change = IsrChange(
        topic_id=topic.topic_id,
        partition=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        isr=(
            IsrMember(broker_id=1),
            IsrMember(broker_id=2),
            IsrMember(broker_id=3, broker_epoch=before),
        ),
    )
    ask = AlterPartition(broker_id=1, broker_epoch=scene.epoch(1), partitions=(change,))
    assert scene.when(ask)[0].error_code is E.ineligible_replica
    scene.register(3, fenced=True)
    assert wish(scene, 1, 2, 3).error_code is E.ineligible_replica


def test_what_was_refused_for_a_member_stays_refused(scene: Scene) -> None:
    """1. A wish is late on its way; asked again, it is refused. 2. Its leader goes on without that member, and commits. 3. The member
    is let in, and the late one comes."""
    wish(scene, 1, 2)
    topic, now = scene.image.topics["t"], scene.partition()
    late = IsrChange(
        topic_id=topic.topic_id,
        partition=0,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        isr=tuple(IsrMember(broker_id=each) for each in (1, 2, 3)),
    )
    ask = AlterPartition(broker_id=1, broker_epoch=scene.epoch(1), partitions=(late,))
    scene.register(3, fenced=True)
    assert scene.partition().partition_epoch == now.partition_epoch
    assert scene.when(ask)[0].error_code is E.ineligible_replica
    scene.register(3, lacking=None)
    assert scene.when(ask)[0].error_code is E.invalid_update_version
    assert scene.partition().isr == (1, 2)
    assert wish(scene, 1, 2, 3).error_code is E.none


def test_two_wishes_for_one_partition_in_a_request_are_refused(scene: Scene) -> None:
    topic = scene.image.topics["t"]
    change = IsrChange(
        topic_id=topic.topic_id,
        partition=0,
        leader_epoch=0,
        partition_epoch=0,
        isr=(IsrMember(broker_id=1),),
    )
    ask = AlterPartition(broker_id=1, broker_epoch=scene.epoch(), partitions=(change, change))
    assert [each.error_code for each in scene.when(ask)] == [E.none, E.invalid_request]
