import dataclasses
from uuid import UUID

from controller_scene import LEVELS, Scene
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.controller.brokers_policy import decide_fence
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    CreateTopics,
    NewTopic,
    RegisterBroker,
    UnregisterBroker,
)
from fencepost.cluster.controller.heartbeats_machine import HeartbeatsMachine
from fencepost.cluster.metadata.codec import encode

E = ErrorCode


def with_topic(scene: Scene, *replicas: int, partitions: int = 1) -> Scene:
    topic = NewTopic(name="t", assignments=tuple((index, replicas) for index in range(partitions)))
    (result,) = scene.when(CreateTopics(topics=(topic,)))
    assert result.error_code is E.none, result
    return scene


def test_a_broker_that_registers_anew_leads_again_under_new_epochs() -> None:
    """Its clients and followers must see that it is another process, which may have forgotten what it said."""
    scene = with_topic(Scene(), 1, partitions=3)
    before = scene.epoch()
    again = scene.register(1)
    assert again.broker_epoch == scene.epoch() > before
    for index in range(3):
        now = scene.partition(index=index)
        assert (now.leader, now.leader_epoch, now.partition_epoch, now.isr) == (1, 1, 1, (1,))


def test_ten_thousand_partitions_of_a_restarted_broker_are_one_batch() -> None:
    scene = with_topic(Scene(), 1, partitions=10_000)
    scene.register(1)
    assert {each.leader_epoch for each in scene.image.topics["t"].partitions} == {1}
    assert len(scene.quorum.proposed[-1]) < 200_000


def test_a_broker_of_another_cluster_is_refused() -> None:
    scene = Scene()
    result = scene.when(
        RegisterBroker(broker_id=2, cluster_id="other", incarnation_id=UUID(int=1), endpoints=())
    )
    assert result.error_code is E.inconsistent_cluster_id
    assert (
        result.error_message == f"Expected cluster ID {scene.cluster_id}, but got cluster ID other"
    )


def test_a_broker_that_is_too_old_for_the_clusters_features_is_refused() -> None:
    """It would be led by rules that it does not know: an older build that is started again after the levels were raised."""
    scene = Scene()
    old = scene.register(2, features={**LEVELS, "transaction.version": (0, 1)})
    assert old.error_code is E.unsupported_version
    assert old.error_message == (
        "Unable to register because the broker does not support finalized version 2 of transaction.version. "
        "The broker wants a version between 0 and 1, inclusive."
    )
    silent = {name: levels for name, levels in LEVELS.items() if name != "group.version"}
    assert scene.register(2, features=silent).error_code is E.unsupported_version
    assert 2 not in scene.image.brokers


def test_a_broker_whose_machine_went_down_leaves_the_isr_if_others_are_in_it() -> None:
    scene = with_topic(Scene(brokers=2), 1, 2)
    scene.register(1, lacking=None)
    assert (scene.partition().leader, scene.partition().isr) == (2, (2,))


def test_a_broker_that_alone_has_the_data_leads_again_whatever_it_went_through() -> None:
    scene = with_topic(Scene(), 1)
    scene.register(1, lacking=None)
    assert (scene.partition().leader, scene.partition().isr) == (1, (1,))


def test_a_fenced_broker_leads_nothing_until_it_has_seen_its_registration() -> None:
    scene = with_topic(Scene(brokers=2), 1, 2)
    scene.register(1, fenced=True)
    assert (scene.partition().leader, scene.partition().isr) == (2, (2,))

    def heartbeat(version: int):
        return scene.when(
            BrokerHeartbeat(broker_id=1, broker_epoch=scene.epoch(), image_version=version)
        )

    late = heartbeat(scene.epoch() - 1)
    assert (late.error_code, late.is_fenced, late.is_caught_up) == (E.none, True, False)
    assert scene.image.brokers[1].fenced
    assert heartbeat(scene.epoch()).is_fenced is False
    assert not scene.image.brokers[1].fenced
    proposed = len(scene.quorum.proposed)
    heartbeat(scene.epoch())
    assert len(scene.quorum.proposed) == proposed


def test_a_silent_broker_is_fenced_and_its_partitions_get_other_leaders() -> None:
    scene = with_topic(Scene(brokers=2), 1, 2)
    decision = decide_fence(scene.controller._scene(), 1, scene.epoch())
    scene.quorum.machine.apply(encode(decision.records))
    assert scene.image.brokers[1].fenced
    assert (scene.partition().leader, scene.partition().leader_epoch) == (2, 1)
    assert decide_fence(scene.controller._scene(), 1, scene.epoch()).records == []
    assert decide_fence(scene.controller._scene(), 2, 999).records == []


def test_a_broker_that_wants_to_go_is_let_go_when_others_lead() -> None:
    scene = with_topic(Scene(brokers=2), 1, 2)
    going = scene.when(
        BrokerHeartbeat(
            broker_id=1, broker_epoch=scene.epoch(), image_version=0, want_shut_down=True
        )
    )
    assert going.should_shut_down
    assert scene.image.brokers[1].in_controlled_shutdown
    assert (scene.partition().leader, scene.partition().isr) == (2, (2,))


def test_a_heartbeat_that_is_late_does_not_bring_back_who_has_asked_to_go() -> None:
    """It was sent before, and decided again after: the broker would lead again, and be gone in the next moment. Kafka's
    brokers do not come back from a shutdown, either."""
    scene = Scene(brokers=2)
    for name, replicas in (("t", (1, 2)), ("u", (1,))):
        topic = NewTopic(name=name, assignments=((0, replicas),))
        scene.when(CreateTopics(topics=(topic,)))
    beat = BrokerHeartbeat(
        broker_id=1, broker_epoch=scene.epoch(), image_version=scene.image.version
    )
    scene.when(dataclasses.replace(beat, want_shut_down=True))
    leaders = [scene.partition(each).leader for each in "tu"]
    assert leaders == [2, NO_LEADER]
    scene.when(beat)
    assert scene.image.brokers[1].in_controlled_shutdown
    assert [scene.partition(each).leader for each in "tu"] == leaders
    scene.register(1)
    assert not scene.image.brokers[1].in_controlled_shutdown, "the next process is there to stay"
    assert scene.partition("u").leader == 1


def test_a_heartbeat_of_an_earlier_registration_is_refused() -> None:
    scene = Scene()
    before = scene.epoch()
    scene.register(1)
    stale = scene.when(BrokerHeartbeat(broker_id=1, broker_epoch=before, image_version=9))
    assert stale.error_code is E.stale_broker_epoch


def test_a_broker_that_votes_is_not_taken_off_the_list() -> None:
    """Gone for good it would be missed in every vote, and nobody would think of it: the list does not show it any more."""
    scene = Scene(brokers=4)
    scene.quorum.voters = frozenset({1, 2, 3})
    for broker_id in (3, 4):
        scene.register(broker_id, fenced=True)
    refused = scene.when(UnregisterBroker(broker_id=3))
    assert (refused.error_code, refused.error_message) == (
        E.invalid_request,
        "Broker 3 still votes on the metadata, and would be missed in every vote: `fencepost node voters remove 3` first.",
    )
    assert 3 in scene.image.brokers
    assert scene.when(UnregisterBroker(broker_id=4)).error_code is E.none, "it does not vote"
    scene.quorum.voters = frozenset({1, 2})
    assert scene.when(UnregisterBroker(broker_id=3)).error_code is E.none
    assert sorted(scene.image.brokers) == [1, 2]


def test_a_voter_that_is_alive_is_told_of_its_vote_before_it_is_told_to_stop() -> None:
    """Stopped first, it would be one voter less to agree on the removal of its own vote."""
    scene = Scene(brokers=3)
    scene.quorum.voters = frozenset({1, 2, 3})
    assert "voters remove 2" in scene.when(UnregisterBroker(broker_id=2)).error_message
    scene.quorum.voters = frozenset({1, 3})
    assert "alive" in scene.when(UnregisterBroker(broker_id=2)).error_message


def test_sessions_end_in_order_of_brokers_and_only_of_those_that_were_heard() -> None:
    machine = HeartbeatsMachine(session_timeout_ms=3000)
    assert machine.next_tick_ms() is None
    machine.heard(2, 20, now_ms=0)
    machine.heard(1, 10, now_ms=0)
    machine.heard(3, 30, now_ms=2000)
    assert machine.next_tick_ms() == 3000
    assert machine.has_session(1, 10, now_ms=2999) and not machine.has_session(1, 11, now_ms=0)
    assert machine.tick(2999) == []
    assert machine.tick(3000) == [(1, 10), (2, 20)]
    assert machine.tick(3000) == []
    machine.forget(3)
    assert machine.tick(99_000) == []
