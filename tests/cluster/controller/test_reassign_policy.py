import pytest
from controller_scene import Scene, wish
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller import reassign_policy
from fencepost.cluster.controller.brokers_policy import decide_fence
from fencepost.cluster.controller.commands import (
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    MorePartitions,
    NewTopic,
    Reassignment,
    UnregisterBroker,
)
from fencepost.cluster.metadata.codec import encode

E = ErrorCode


@pytest.fixture
def scene() -> Scene:
    scene = Scene({"min.insync.replicas": "2"}, brokers=5)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2, 3)),)),)))
    return scene


def move(scene: Scene, *replicas: int, **other: bool) -> E:
    asked = Reassignment(topic="t", partition=0, replicas=replicas or None)
    (result,) = scene.when(AlterReassignments(partitions=(asked,), **other))
    return result.error_code


def moving(scene: Scene) -> tuple[tuple[int, ...], ...]:
    now = scene.partition()
    return now.replicas, now.adding, now.removing


def fence(scene: Scene, broker_id: int) -> None:
    decision = decide_fence(scene.controller._scene(), broker_id, scene.epoch(broker_id))
    scene.quorum.machine.apply(encode(decision.records))


def test_nothing_is_dropped_before_the_new_ones_are_in_sync(scene: Scene) -> None:
    assert move(scene, 4, 5, 3) is E.none
    assert moving(scene) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    wish(scene, 1, 2, 3, 4)
    assert moving(scene) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    before = scene.partition()
    done = wish(scene, 1, 2, 3, 4, 5)
    # The leader is among those that go: the change that it asked for costs it the lead.
    assert done.error_code is E.new_leader_elected
    now = scene.partition()
    assert moving(scene) == ((4, 5, 3), (), ())
    assert (now.leader, now.leader_epoch) == (4, before.leader_epoch + 1)
    assert (sorted(now.isr), now.elr) == ([3, 4, 5], ())


def test_partitions_that_are_added_meanwhile_have_as_many_replicas_as_there_will_be(
    scene: Scene,
) -> None:
    """They had those of both sides, for good."""
    assert move(scene, 4, 5, 3) is E.none
    more = (
        MorePartitions(name="t", count=2),
        MorePartitions(name="t", count=3, assignments=((1, 2, 3),)),
    )
    for each in more:
        (result,) = scene.when(CreatePartitions(topics=(each,)))
        assert result.error_code is E.none, result
    added = scene.image.topics["t"].partitions[1:]
    assert [len(each.replicas) for each in added] == [3, 3]


def test_a_leader_that_stays_goes_on_under_a_new_epoch_without_the_dropped_replica(
    scene: Scene,
) -> None:
    move(scene, 1, 2, 4)
    done = wish(scene, 1, 2, 3, 4)
    assert (done.error_code, done.leader, done.isr) == (E.none, 1, (1, 2, 4))
    assert (done.leader_epoch, scene.partition().leader_epoch) == (1, 1)


def test_a_new_order_of_the_same_replicas_changes_no_leader(scene: Scene) -> None:
    assert move(scene, 3, 1, 2) is E.none
    assert (moving(scene), scene.partition().leader) == (((3, 1, 2), (), ()), 1)


def test_a_cancelled_move_drops_what_it_was_adding(scene: Scene) -> None:
    move(scene, 4, 5)
    wish(scene, 1, 2, 3, 4)
    assert move(scene) is E.none
    assert (moving(scene), scene.partition().isr) == (((1, 2, 3), (), ()), (1, 2, 3))
    assert move(scene) is E.no_reassignment_in_progress


def test_a_move_is_not_cancelled_where_only_the_new_replicas_have_everything(scene: Scene) -> None:
    move(scene, 4, 5)
    wish(scene, 1, 4)
    fence(scene, 1)
    assert (scene.partition().leader, scene.partition().isr) == (4, (4,))
    assert move(scene) is E.invalid_replica_assignment
    assert scene.partition().isr == (4,)


def test_a_move_that_takes_over_from_another_lets_go_what_that_was_adding(scene: Scene) -> None:
    """Kafka forgets that 4 was not the partition's own, and would keep it when the second move is cancelled."""
    move(scene, 4, 2, 3)
    assert move(scene, 5, 2, 3) is E.none
    assert moving(scene) == ((5, 2, 3, 1, 4), (4, 5), (1, 4))
    move(scene)
    assert sorted(moving(scene)[0]) == [1, 2, 3]


def test_going_back_to_where_it_was_ends_a_move_at_once(scene: Scene) -> None:
    """Kafka waits until the replica that is removed is in sync: for ever."""
    move(scene, 4, 2, 3)
    assert move(scene, 1, 2, 3) is E.none
    assert moving(scene) == ((1, 2, 3), (), ())


def test_a_dead_colleague_does_not_hold_up_a_move_that_replaces_another(scene: Scene) -> None:
    fence(scene, 3)
    move(scene, 4, 2, 3)
    wish(scene, 1, 2, 4)
    assert (moving(scene), scene.partition().isr) == (((4, 2, 3), (), ()), (2, 4))


def test_replicas_become_fewer_only_when_all_that_remain_are_in_sync(scene: Scene) -> None:
    fence(scene, 3)
    move(scene, 3, 2)
    assert moving(scene) == ((3, 2, 1), (), (1,))
    scene.register(3)
    wish(scene, 1, 2, 3)
    assert moving(scene) == ((3, 2), (), ())


def test_a_topic_of_one_replica_stays_writable_while_it_moves(scene: Scene) -> None:
    """Else min.insync.replicas 2 would hold from its first step on, and nobody could write until the last."""
    scene.when(CreateTopics(topics=(NewTopic(name="one", assignments=((0, (1,)),)),)))
    asked = Reassignment(topic="one", partition=0, replicas=(2,))
    scene.when(AlterReassignments(partitions=(asked,)))
    now = scene.partition("one")
    assert scene.controller._scene().min_insync_replicas("one", now) == 1


def test_the_replication_factor_changes_only_where_it_may(scene: Scene) -> None:
    refused = move(scene, 1, 2, allow_factor_change=False)
    assert (refused, moving(scene)[0]) == (E.invalid_replication_factor, (1, 2, 3))
    assert move(scene, 5, 4, 3, allow_factor_change=False) is E.none
    # While it moves, the factor is that of where it goes to.
    assert move(scene, 5, 4, 2, allow_factor_change=False) is E.none


def test_the_second_order_for_a_partition_in_one_request_is_refused(scene: Scene) -> None:
    orders = tuple(
        Reassignment(topic="t", partition=0, replicas=each) for each in ((1, 2, 4), (1, 2, 5))
    )
    results = scene.when(AlterReassignments(partitions=orders))
    assert [each.error_code for each in results] == [E.none, E.invalid_request]
    assert moving(scene)[1] == (4,)


def test_a_tick_finishes_what_has_arrived_by_other_means(scene: Scene) -> None:
    scene.when(CreateTopics(topics=(NewTopic(name="one", assignments=((0, (1,)),)),)))
    fence(scene, 1)
    asked = Reassignment(topic="one", partition=0, replicas=(2,))
    scene.when(AlterReassignments(partitions=(asked,)))
    assert reassign_policy.decide_tick(scene.controller._scene()).records == []
    unclean = ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("one", 0),))
    assert scene.when(unclean)[0].error_code is E.none
    records = reassign_policy.decide_tick(scene.controller._scene()).records
    scene.quorum.machine.apply(encode(records))
    assert (scene.partition("one").replicas, scene.partition("one").leader) == ((2,), 2)


def test_only_a_broker_that_is_gone_is_taken_off_the_list(scene: Scene) -> None:
    alive = scene.when(UnregisterBroker(broker_id=1))
    assert alive.error_code is E.invalid_request and "alive" in alive.error_message
    fence(scene, 1)
    assert scene.when(UnregisterBroker(broker_id=1)).error_code is E.none
    assert sorted(scene.image.brokers) == [2, 3, 4, 5]
    assert scene.partition().replicas == (1, 2, 3)
    assert scene.when(UnregisterBroker(broker_id=1)).error_code is E.broker_id_not_registered
    assert move(scene, 1, 2, 4) is E.invalid_replica_assignment
    assert move(scene, 2, 3, 4) is E.none
