"""Logs that failed on a living broker: who leads instead, and when the broker counts again."""

from controller_scene import Scene, wish
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    FailedReplica,
    NewTopic,
)
from fencepost.cluster.controller.election_policy import Placement, Wish, changed
from fencepost.cluster.metadata.image import PartitionState


def scene_of_three() -> Scene:
    scene = Scene({"min.insync.replicas": "2"}, brokers=3)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2, 3)),)),)))
    return scene


def failed(scene: Scene, *, may_lack: bool = False) -> tuple[FailedReplica, ...]:
    topic_id = scene.image.topics["t"].topic_id
    return (FailedReplica(topic_id=topic_id, partition=0, may_lack=may_lack),)


def beat(scene: Scene, broker: int, **other: object) -> object:
    return scene.when(
        BrokerHeartbeat(
            broker_id=broker,
            broker_epoch=scene.epoch(broker),
            image_version=scene.image.version,
            **other,
        )
    )


def test_a_leader_whose_log_failed_leads_no_more_though_it_lives() -> None:
    scene = scene_of_three()
    answer = beat(scene, 1, failed=failed(scene))
    now = scene.partition()
    assert (now.leader, now.leader_epoch, now.isr, now.offline) == (2, 1, (2, 3), (1,))
    assert not answer.is_fenced
    assert scene.image.alive_brokers()[0].broker_id == 1


def test_what_is_told_twice_changes_nothing_twice() -> None:
    scene = scene_of_three()
    beat(scene, 1, failed=failed(scene))
    version = scene.image.version
    beat(scene, 1, failed=failed(scene))
    assert scene.image.version == version


def test_a_log_that_one_heartbeat_names_twice_ends_no_controller_and_the_worse_counts() -> None:
    """What a peer says wrongly is no broken invariant of whoever hears it."""
    scene = scene_of_three()
    beat(scene, 3, failed=failed(scene))
    beat(scene, 1, failed=failed(scene) + failed(scene, may_lack=True))
    now = scene.partition()
    assert (now.leader, now.isr, now.elr, now.offline) == (2, (2,), (), (1, 3)), (
        "1 may lack something"
    )


def test_a_failed_log_joins_no_in_sync_set_and_is_never_elected() -> None:
    scene = scene_of_three()
    beat(scene, 1, failed=failed(scene))
    assert wish(scene, 2, 3, 1, broker=2).error_message == (
        "Broker 1 is without its log of this partition, which failed."
    )
    preferred = ElectLeaders(election=ElectionType.PREFERRED, partitions=(("t", 0),))
    scene.when(preferred)
    beat(scene, 2, want_fence=True)
    beat(scene, 3, want_fence=True)
    unclean = ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),))
    scene.when(unclean)
    assert scene.partition().leader == -1


def test_the_last_that_has_everything_stays_named_and_leads_after_its_restart() -> None:
    scene = scene_of_three()
    wish(scene, 1, 2)
    wish(scene, 1)
    beat(scene, 2, want_fence=True)
    beat(scene, 1, failed=failed(scene))
    now = scene.partition()
    assert (now.leader, now.isr, now.elr, now.offline) == (-1, (1,), (2,), (1,))
    scene.register(1)
    now = scene.partition()
    assert (now.leader, now.isr, now.offline) == (1, (1,), ())


def test_a_broker_that_comes_back_without_one_of_its_logs_does_not_lead_that_partition() -> None:
    scene = scene_of_three()
    scene.register(1, failed=failed(scene, may_lack=True))
    now = scene.partition()
    assert (now.leader, now.isr, now.offline) == (2, (2, 3), (1,))
    scene.register(1)
    assert scene.partition().offline == ()


def test_a_log_that_may_lack_something_is_not_eligible_and_one_that_has_all_is() -> None:
    """Under flush.policy=ack all that was acknowledged was synced before the disk failed (KIP-966)."""
    now = PartitionState(0, 1, 5, 7, (1, 2, 3), (1, 2))
    has_all = changed(now, Wish(isr=(2,), failed=1), alive={1, 2, 3}, min_isr=2)
    may_lack = changed(now, Wish(isr=(2,), failed=1, lost=1), alive={1, 2, 3}, min_isr=2)
    assert has_all is not None and (has_all.leader, has_all.elr) == (2, (1,))
    assert may_lack is not None and (may_lack.leader, may_lack.elr) == (2, ())


def test_an_eligible_replica_whose_log_failed_waits_for_its_restart() -> None:
    now = PartitionState(0, 2, 5, 7, (1, 2, 3), (2,), (1,), offline=(1,))
    gone = changed(now, Wish(isr=()), alive={1, 3}, min_isr=2)
    assert gone is not None and gone.leader == -1
    then = PartitionState(0, -1, 6, 8, (1, 2, 3), gone.isr, gone.elr, offline=(1,))
    back = changed(then, Wish(restarted=1), alive={1, 3}, min_isr=2)
    assert back is not None and back.leader == 1


def test_a_replica_that_is_moved_away_takes_its_failure_with_it() -> None:
    scene = scene_of_three()
    beat(scene, 1, failed=failed(scene))
    now = scene.partition()
    moved = changed(now, Wish(placement=Placement((2, 3))), alive={1, 2, 3}, min_isr=2)
    assert moved is not None and moved.offline == ()
