"""SyncGroup, Heartbeat, LeaveGroup, timeouts and takeover of classic groups, row by row as Kafka 4.3."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.runtime.decision import Parked
from support.group_scene import Scene

E = ErrorCode


def in_phase(phase: str) -> tuple[Scene, str, str]:
    """A group of two in that phase: leader and follower."""
    scene = Scene()
    leader, follower = scene.stable(2)
    if phase in ("PreparingRebalance", "CompletingRebalance"):
        scene.join(leader)
    if phase == "CompletingRebalance":
        scene.join(follower)
    if phase == "Empty":
        scene.leave(leader, follower)
    assert scene.phase() == phase
    return scene, leader, follower


# -- SyncGroup -----------------------------------------------------------------------------------

SYNC = [
    # phase, who, generation less the group's, protocol type, protocol name -> error (None: parked)
    ("Stable", "follower", 0, "consumer", "range", E.none),
    ("Stable", "follower", 0, None, None, E.none),
    ("Stable", "follower", -1, "consumer", "range", E.illegal_generation),
    ("Stable", "follower", 1, "consumer", "range", E.illegal_generation),
    ("Stable", "nobody", 0, "consumer", "range", E.unknown_member_id),
    ("Stable", "nobody", 9, "connect", "range", E.unknown_member_id),
    ("Stable", "follower", 0, "connect", "range", E.inconsistent_group_protocol),
    ("Stable", "follower", 0, "consumer", "sticky", E.inconsistent_group_protocol),
    ("CompletingRebalance", "follower", 0, "consumer", "range", None),
    ("CompletingRebalance", "follower", -1, "consumer", "range", E.illegal_generation),
    ("CompletingRebalance", "follower", 0, "consumer", "sticky", E.inconsistent_group_protocol),
    ("PreparingRebalance", "follower", 0, "consumer", "range", E.rebalance_in_progress),
    ("PreparingRebalance", "nobody", 0, "consumer", "range", E.unknown_member_id),
    ("Empty", "follower", 0, "consumer", "range", E.unknown_member_id),
]


@pytest.mark.parametrize(("phase", "who", "ahead", "kind", "name", "error"), SYNC)
def test_sync_group_is_refused_as_kafka_does(phase, who, ahead, kind, name, error) -> None:
    scene, _, follower = in_phase(phase)
    member = follower if who == "follower" else who
    generation = scene.generation() + ahead
    reply = scene.sync(member, generation, protocol_type=kind, protocol_name=name)
    if error is None:
        assert scene.is_waiting(reply)
    else:
        assert reply["error_code"] is error


def test_sync_group_to_a_group_that_nobody_knows_knows_no_member() -> None:
    assert Scene().sync("c-1", 1)["error_code"] is E.unknown_member_id


def test_the_leaders_assignment_answers_everyone_and_is_logged_once() -> None:
    scene, leader, follower = in_phase("CompletingRebalance")
    waits = scene.sync(follower, 2)
    logged = len(scene.log)
    leads = scene.sync(leader, 2, assign=[(follower, b"all")])
    assert scene.answer(waits)["assignment"] == b"all"
    assert scene.answer(leads)["assignment"] == b"", "whom the leader forgot gets nothing to read"
    assert scene.answer(leads)["protocol_name"] == "range"
    assert (scene.phase(), len(scene.log)) == ("Stable", logged + 1)
    assert scene.sync(follower, 2)["assignment"] == b"all", "as often as it asks"


def test_when_someone_comes_while_others_sync_those_are_told_to_join_again() -> None:
    scene, _, follower = in_phase("CompletingRebalance")
    waits = scene.sync(follower, 2)
    scene.enter(client="late")
    assert scene.answer(waits)["error_code"] is E.rebalance_in_progress
    assert scene.phase() == "PreparingRebalance"


def test_whoever_does_not_sync_within_the_rebalance_timeout_is_out() -> None:
    """KAFKA-12890 and its kind: one silent member must not keep the others from being assigned."""
    scene = Scene()
    silent, waits = scene.enter(client="silent", session_ms=200_000, rebalance_ms=20_000)
    other, also = scene.enter(client="other", session_ms=200_000, rebalance_ms=20_000)
    scene.pass_ms(6_000)
    assert scene.answer(waits)["leader"] == silent
    synced = scene.sync(other, scene.answer(also)["generation_id"])
    scene.pass_ms(19_999 - 3_000)
    assert scene.is_waiting(synced)
    scene.pass_ms(3_001)
    assert scene.answer(synced)["error_code"] is E.rebalance_in_progress
    assert scene.heartbeat(silent, 1) is E.unknown_member_id
    assert scene.heartbeat(other, 1) is E.rebalance_in_progress


def test_a_member_that_has_its_assignment_but_never_asked_for_it_is_out_too() -> None:
    scene = Scene()
    leader, waits = scene.enter(client="a", session_ms=200_000, rebalance_ms=20_000)
    silent, _ = scene.enter(client="b", session_ms=200_000, rebalance_ms=20_000)
    scene.pass_ms(6_000)
    scene.sync(leader, scene.answer(waits)["generation_id"], assign=[(silent, b"1")])
    assert scene.phase() == "Stable"
    scene.pass_ms(20_000)
    assert scene.phase() == "PreparingRebalance"
    assert scene.heartbeat(silent, 1) is E.unknown_member_id


# -- Heartbeat -----------------------------------------------------------------------------------

HEARTBEAT = [
    ("Stable", "follower", 0, E.none),
    ("Stable", "follower", 1, E.illegal_generation),
    ("Stable", "nobody", 1, E.unknown_member_id),
    ("CompletingRebalance", "follower", 0, E.none),
    ("PreparingRebalance", "follower", 0, E.rebalance_in_progress),
    ("PreparingRebalance", "follower", 1, E.illegal_generation),
    ("Empty", "follower", 0, E.unknown_member_id),
]


@pytest.mark.parametrize(("phase", "who", "ahead", "error"), HEARTBEAT)
def test_a_heartbeat_is_answered_as_kafka_does(phase, who, ahead, error) -> None:
    scene, _, follower = in_phase(phase)
    member = follower if who == "follower" else who
    assert scene.heartbeat(member, scene.generation() + ahead) is error


def test_a_heartbeat_to_a_group_that_nobody_knows_knows_no_member() -> None:
    assert Scene().heartbeat("c-1", 1) is E.unknown_member_id


def test_a_member_lives_as_long_as_its_heartbeats_come() -> None:
    scene = Scene()
    (member,) = scene.stable(1, session_ms=10_000)
    for _ in range(5):
        scene.pass_ms(9_999)
        assert scene.heartbeat(member, 1) is E.none
    scene.pass_ms(10_000)
    assert scene.heartbeat(member, 1) is E.unknown_member_id
    assert (scene.phase(), scene.generation()) == ("Empty", 2)


def test_a_commit_is_a_sign_of_life_too() -> None:
    scene = Scene()
    (member,) = scene.stable(1, session_ms=10_000)
    scene.pass_ms(9_999)
    scene.commit(("t", 0, 5), member_id=member, generation=1)
    scene.pass_ms(9_999)
    assert scene.heartbeat(member, 1) is E.none


def test_a_member_that_waits_for_us_is_not_expected_to_send_heartbeats() -> None:
    scene = Scene()
    leader, follower = scene.stable(2, session_ms=10_000, rebalance_ms=60_000)
    parked = scene.join(follower, protocols=(("range", b"new"),), session_ms=10_000)
    for _ in range(5):
        scene.pass_ms(9_000)
        scene.heartbeat(leader, 1)
    assert scene.is_waiting(parked)
    scene.join(leader)
    assert scene.answer(parked)["error_code"] is E.none


def test_a_client_that_died_before_its_first_answer_is_forgotten_in_the_end() -> None:
    """It knows no id, so no heartbeat can be expected; only a longer silence tells."""
    scene = Scene()
    (leader,) = scene.stable(1, session_ms=1_000_000, rebalance_ms=1_000_000)
    _, dead = scene.enter(client="dead", session_ms=10_000, rebalance_ms=1_000_000)
    scene.pass_ms(5 * 60_000 - 1)
    assert scene.is_waiting(dead)
    scene.pass_ms(1)
    assert scene.answer(dead)["error_code"] is E.unknown_member_id
    assert scene.heartbeat(leader, 1) is E.rebalance_in_progress


# -- LeaveGroup ----------------------------------------------------------------------------------


def test_a_member_that_leaves_makes_room_at_once() -> None:
    scene, leader, follower = in_phase("Stable")
    assert scene.leave(leader) == [E.none]
    assert scene.phase() == "PreparingRebalance"
    answer = scene.answer(scene.join(follower))
    assert (answer["leader"], answer["generation_id"]) == (follower, 2)


def test_when_the_last_member_leaves_the_group_is_empty_and_that_is_logged() -> None:
    scene, leader, follower = in_phase("Stable")
    assert scene.leave(leader, follower, "nobody") == [E.none, E.none, E.unknown_member_id]
    assert (scene.phase(), scene.generation()) == ("Empty", 2)
    scene.reload()
    assert (scene.phase(), scene.generation()) == ("Empty", 2)


def test_static_members_are_removed_by_their_instance() -> None:
    """KIP-345: what `kafka-consumer-groups --delete-members` and Kafka Streams do."""
    scene = Scene()
    parked = scene.join(instance="i1")
    scene.pass_ms(3_000)
    one = scene.answer(parked)["member_id"]
    scene.sync(one, 1, instance="i1")
    assert scene.leave(("", "i9"), ("x", "i1"), ("", "i1")) == [
        E.unknown_member_id,
        E.fenced_instance_id,
        E.none,
    ]
    assert scene.phase() == "Empty"


def test_a_pending_member_may_leave_before_it_has_joined() -> None:
    scene = Scene()
    (leader,) = scene.stable(1)
    pending = scene.join()["member_id"]
    parked = scene.join(leader)
    assert scene.leave(pending) == [E.none]
    assert scene.answer(parked)["error_code"] is E.none


def test_a_pending_member_that_leaves_a_stable_group_disturbs_nobody() -> None:
    """Kafka's removePendingMemberAndUpdateClassicGroup: it had no part in the generation."""
    scene = Scene()
    (leader,) = scene.stable(1)
    pending = scene.join()["member_id"]
    assert scene.leave(pending) == [E.none]
    assert scene.phase() == "Stable"
    assert scene.heartbeat(leader, 1) is E.none


def test_a_pending_member_that_leaves_while_others_sync_disturbs_nobody() -> None:
    scene, _, _ = in_phase("CompletingRebalance")
    pending = scene.join()["member_id"]
    assert scene.leave(pending) == [E.none]
    assert scene.phase() == "CompletingRebalance"


def test_leaving_a_group_that_nobody_knows_knows_no_member() -> None:
    assert Scene().leave("a", "b") == [E.unknown_member_id] * 2


def test_who_leaves_while_it_waits_is_told_so() -> None:
    scene = Scene()
    _, follower = scene.stable(2)
    parked = scene.join(follower, protocols=(("range", b"new"),))
    scene.leave(follower)
    assert scene.answer(parked)["error_code"] is E.unknown_member_id


# -- takeover ------------------------------------------------------------------------------------


def test_a_coordinator_built_from_the_log_knows_every_stable_group() -> None:
    scene = Scene()
    ids = {name: scene.stable(3, group=name) for name in ("g1", "g2")}
    scene.reload()
    for name, (leader, follower, other) in ids.items():
        assert scene.heartbeat(leader, 1, group=name) is E.none
        assert scene.sync(follower, 1, group=name)["assignment"] == f"to {follower}".encode()
        assert scene.join(other, group=name)["leader"] == leader


def test_after_a_takeover_a_member_has_a_whole_session_to_show_itself() -> None:
    scene = Scene()
    (member,) = scene.stable(1, session_ms=10_000)
    scene.pass_ms(9_999)
    scene.reload()
    scene.pass_ms(9_999)
    assert scene.heartbeat(member, 1) is E.none


def test_a_rebalance_that_the_log_never_saw_begins_anew_after_a_takeover() -> None:
    scene, leader, follower = in_phase("PreparingRebalance")
    scene.reload()
    assert (scene.phase(), scene.generation()) == ("Stable", 1)
    assert isinstance(scene.join(leader), Parked)
    assert scene.heartbeat(follower, 1) is E.rebalance_in_progress


def test_a_generation_that_the_log_never_saw_is_given_out_again_to_nobody_who_had_it() -> None:
    """Generation 2 was told to two members and lost with its coordinator; whoever claims it is refused."""
    scene, leader, follower = in_phase("CompletingRebalance")
    assert scene.generation() == 2
    scene.reload()
    for member in (leader, follower):
        assert scene.sync(member, 2)["error_code"] is E.illegal_generation
        assert scene.heartbeat(member, 2) is E.illegal_generation
        assert scene.commit(("t", 0, 1), member_id=member, generation=2) == [E.illegal_generation]


def test_a_freshly_loaded_group_over_the_limit_shrinks_by_a_rebalance() -> None:
    scene = Scene()
    scene.stable(3)
    scene.config = GroupConfig(group_max_size=2)
    scene.reload()
    assert scene.phase() == "PreparingRebalance"
