import pytest
from controller_scene import Scene, wish
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.controller import balance_policy, service
from fencepost.cluster.controller.commands import (
    BrokerHeartbeat,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    NewTopic,
    UnregisterBroker,
)
from fencepost.cluster.metadata.codec import encode

E = ErrorCode
EVERYWHERE = ElectLeaders(election=ElectionType.PREFERRED, partitions=None)
UNCLEAN = ElectLeaders(election=ElectionType.UNCLEAN, partitions=(("t", 0),))


@pytest.fixture
def scene() -> Scene:
    scene = Scene(brokers=3)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2, 3)),)),)))
    return scene


def tick(scene: Scene) -> int:
    """How many leaders the balance policy has changed."""
    records = balance_policy.decide_tick(scene.controller._scene()).records
    if records:
        scene.quorum.machine.apply(encode(records))
    return sum(len(each.changes) for each in records)


def test_preferred_leaders_are_restored(scene: Scene) -> None:
    scene.register(1, fenced=True)
    (unavailable,) = scene.when(EVERYWHERE)
    assert unavailable.error_code is E.preferred_leader_not_available
    scene.register(1)
    wish(scene, 1, 2, 3, broker=2)
    (elected,) = scene.when(EVERYWHERE)
    assert (elected.error_code, scene.partition().leader) == (E.none, 1)
    assert scene.when(EVERYWHERE) == []
    asked = (("t", 0), ("t", 9), ("nope", 0))
    codes = [
        each.error_code
        for each in scene.when(ElectLeaders(election=ElectionType.PREFERRED, partitions=asked))
    ]
    unknown = E.unknown_topic_or_partition
    assert codes == [E.election_not_needed, unknown, unknown]


def test_more_elections_than_a_batch_may_hold_are_refused_and_none_is_made(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a client of a cluster of a hundred thousand partitions; it ended the controller."""
    wish(scene, 1, 2, 3, broker=1)
    scene.register(1, fenced=True)
    scene.register(1)
    wish(scene, 1, 2, 3, broker=2)
    assert scene.partition().leader != 1
    asked = (("t", 0), ("nope", 0))
    preferred = ElectLeaders(election=ElectionType.PREFERRED, partitions=asked)
    monkeypatch.setattr(service, "BATCH_BYTES_MAX", 20)
    assert [each.error_code for each in scene.when(preferred)] == [E.policy_violation] * 2
    (refused,) = scene.when(EVERYWHERE)
    assert (refused.topic, refused.partition, refused.error_code) == ("t", 0, E.policy_violation)
    assert refused.error_message == "Unable to perform excessively large batch operation."
    assert scene.partition().leader != 1


def test_a_broker_with_more_partitions_than_a_batch_may_hold_is_not_taken_off_the_list(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish(scene, 1, 2, 3, broker=1)
    scene.register(3, fenced=True)
    monkeypatch.setattr(service, "BATCH_BYTES_MAX", 5)
    refused = scene.when(UnregisterBroker(broker_id=3))
    assert refused.error_code is E.policy_violation
    assert "Move away what it has" in refused.error_message
    assert 3 in scene.image.brokers


def test_an_unclean_election_is_made_only_when_asked_for(scene: Scene) -> None:
    """Neither a setting nor a preferred election nor a tick elects a replica that may lack something."""
    wish(scene, 1)
    scene.register(1, fenced=True)
    assert scene.partition().leader == -1
    assert scene.when(EVERYWHERE)[0].error_code is E.preferred_leader_not_available
    assert tick(scene) == 0
    scene.register(3)
    assert (scene.partition().leader, scene.partition().isr) == (-1, (1,))
    (elected,) = scene.when(UNCLEAN)
    assert (elected.error_code, scene.partition().leader) == (E.none, 2)
    assert (scene.partition().isr, scene.partition().elr) == ((2,), ())
    assert scene.when(UNCLEAN)[0].error_code is E.election_not_needed


def test_an_unclean_election_prefers_whoever_has_everything(scene: Scene) -> None:
    """The person may not know that one of them is back, or eligible: nothing is given up then."""
    scene.when(CreateTopics(topics=(NewTopic(name="two", assignments=((0, (1, 2)),)),)))
    wish(scene, 1)
    scene.register(1, fenced=True)
    beat = BrokerHeartbeat(broker_id=1, broker_epoch=scene.epoch(), image_version=scene.epoch())
    scene.when(beat)
    assert scene.when(UNCLEAN)[0].error_code is E.election_not_needed
    assert scene.partition().leader == 1


def test_without_a_living_replica_there_is_nobody_to_elect(scene: Scene) -> None:
    for broker_id in (1, 2, 3):
        scene.register(broker_id, fenced=True)
    assert scene.when(UNCLEAN)[0].error_code is E.eligible_leaders_not_available


def test_leaders_go_back_to_a_node_that_is_back_in_sync(scene: Scene) -> None:
    scene.register(1, fenced=True)
    scene.register(1)
    assert tick(scene) == 0, "it is not in sync yet"
    wish(scene, 1, 2, 3, broker=2)
    assert (scene.partition().leader, tick(scene), scene.partition().leader) == (2, 1, 1)
    assert tick(scene) == 0


def test_leaders_stay_where_they_are_when_that_is_set() -> None:
    scene = Scene({"auto.leader.rebalance.enable": "false"}, brokers=2)
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=((0, (1, 2)),)),)))
    scene.register(1, fenced=True)
    scene.register(1)
    wish(scene, 1, 2, broker=2)
    assert tick(scene) == 0


def test_a_tick_moves_no_more_than_so_many_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance_policy, "ELECTIONS_PER_TICK_MAX", 3)
    scene = Scene(brokers=2)
    places = tuple((index, (1, 2)) for index in range(5))
    scene.when(CreateTopics(topics=(NewTopic(name="t", assignments=places),)))
    scene.register(1, fenced=True)
    scene.register(1)
    for index in range(5):
        wish(scene, 1, 2, broker=2, partition=index)
    assert [tick(scene) for _ in range(3)] == [3, 2, 0]


def test_leaders_go_back_once_in_the_interval(scene: Scene) -> None:
    """A node that is restarted all the time must not take its leaders back and lose them all the time."""
    balance, now_ms = balance_policy.LeaderBalance(), [1_000_000]
    scene.controller._env.clock.now_ms = lambda: now_ms[0]

    def ticks() -> int:
        records = balance.decide_tick(scene.controller._scene()).records
        if records:
            scene.quorum.machine.apply(encode(records))
        return len(records)

    def restart() -> None:
        scene.register(1, fenced=True)
        scene.register(1)
        wish(scene, 1, 2, 3, broker=scene.partition().leader)

    restart()
    assert [ticks(), ticks()] == [1, 0]
    restart()
    assert ticks() == 0
    now_ms[0] += 9_999
    assert ticks() == 0
    now_ms[0] += 1
    assert ticks() == 1
    assert ticks() == 0
    restart()
    now_ms[0] -= 3_600_000  # the clock is set back
    assert ticks() == 1
