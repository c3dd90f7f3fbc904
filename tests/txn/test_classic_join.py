"""JoinGroup to classic groups: GroupMetadataManager.classicGroupJoin* in Kafka 4.3, row by row."""

import copy

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups import classic_join
from fencepost.txn.groups.commands import JoinGroup
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.runtime.decision import Parked
from support.group_scene import Scene

E = ErrorCode
RANGE = (("range", b"r"),)


def test_a_member_without_an_id_is_given_one_and_asked_to_come_again() -> None:
    """KIP-394: so that a client that gives up and retries leaves no ghost behind."""
    scene = Scene()
    reply = scene.join(client="billing")
    assert (reply["error_code"], reply["member_id"]) == (E.member_id_required, "billing-1")
    assert scene.phase() == "Empty"
    assert isinstance(scene.join("billing-1"), Parked)
    assert scene.phase() == "PreparingRebalance"


def test_before_v4_a_member_is_let_in_without_knowing_its_id() -> None:
    scene = Scene()
    parked = scene.join(client="old", version=3)
    scene.pass_ms(3_000)
    assert scene.answer(parked)["member_id"] == "old-1"


def test_a_known_id_in_a_group_that_nobody_knows_is_unknown() -> None:
    reply = Scene().join("c-7")
    assert (reply["error_code"], reply["member_id"]) == (E.unknown_member_id, "c-7")


def test_a_new_group_is_logged_before_anyone_is_answered_about_it() -> None:
    scene = Scene()
    scene.join()
    scene.reload()
    assert scene.phase() == "Empty"


def test_a_refused_join_makes_no_group() -> None:
    scene = Scene()
    reply = scene.join(protocols=())
    assert reply["error_code"] is E.inconsistent_group_protocol
    assert (scene.phase(), scene.log) == ("none", [])


def test_the_first_rebalance_waits_for_more_members() -> None:
    """KIP-134: group.initial.rebalance.delay.ms from the first member on, and again for each that comes."""
    scene = Scene()
    first, waits = scene.enter(client="a")
    scene.pass_ms(2_999)
    assert scene.is_waiting(waits)
    second, also_waits = scene.enter(client="b")
    scene.pass_ms(2_999)
    assert scene.is_waiting(waits), "somebody came: another delay"
    scene.pass_ms(2)
    leader, follower = scene.answer(waits), scene.answer(also_waits)
    assert [row["member_id"] for row in leader["members"]] == [first, second]
    assert follower["members"] == []
    assert leader["leader"] == follower["leader"] == first
    assert leader["generation_id"] == follower["generation_id"] == 1


def test_the_first_rebalance_waits_no_longer_than_the_longest_rebalance_timeout() -> None:
    scene = Scene()
    _, waits = scene.enter(rebalance_ms=7_000)
    for _ in range(6):
        scene.pass_ms(1_500)
        if not scene.is_waiting(waits):
            break
        scene.enter(rebalance_ms=7_000)
    assert not scene.is_waiting(waits)
    assert scene.now_ms - 1_000_000 <= 9_000


def test_with_no_initial_delay_the_first_member_is_answered_at_once() -> None:
    scene = Scene(GroupConfig(group_initial_rebalance_delay_ms=0))
    _, parked = scene.enter()
    scene.pass_ms(0)
    assert scene.answer(parked)["error_code"] is E.none


@pytest.mark.parametrize(
    ("protocol_type", "protocols", "error"),
    [
        ("consumer", (("range", b""),), None),
        ("consumer", (("sticky", b""), ("range", b"")), None),
        ("consumer", (("sticky", b""),), E.inconsistent_group_protocol),
        ("connect", (("range", b""),), E.inconsistent_group_protocol),
        ("consumer", (), E.inconsistent_group_protocol),
        ("", (("range", b""),), E.inconsistent_group_protocol),
    ],
)
def test_who_has_nothing_in_common_with_the_members_stays_out(protocol_type, protocols, error):
    scene = Scene()
    scene.stable(1, protocols=RANGE)
    reply = scene.join(protocol_type=protocol_type, protocols=protocols)
    assert reply["error_code"] is (error or E.member_id_required)


def test_the_protocol_that_most_members_put_first_is_agreed_on() -> None:
    scene = Scene()
    wishes = (
        (("range", b""), ("sticky", b"")),
        (("sticky", b""), ("range", b"")),
        (("roundrobin", b""), ("sticky", b""), ("range", b"")),
    )
    parked = [scene.enter(protocols=wish)[1] for wish in wishes]
    scene.pass_ms(10_000)
    assert [scene.answer(p)["protocol_name"] for p in parked] == ["sticky"] * 3


# A member of a group in each phase joins again. (phase, who, its protocols) -> what comes of it.
AGAIN = [
    ("Stable", "leader", "same", "rebalance"),
    ("Stable", "leader", "changed", "rebalance"),
    ("Stable", "follower", "same", "told"),
    ("Stable", "follower", "changed", "rebalance"),
    ("CompletingRebalance", "leader", "same", "told with members"),
    ("CompletingRebalance", "leader", "changed", "rebalance"),
    ("CompletingRebalance", "follower", "same", "told"),
    ("CompletingRebalance", "follower", "changed", "rebalance"),
    ("PreparingRebalance", "leader", "same", "waits"),
    ("PreparingRebalance", "follower", "changed", "waits"),
]


@pytest.mark.parametrize(("phase", "who", "wish", "outcome"), AGAIN)
def test_a_member_that_joins_again_is_told_or_starts_a_rebalance(phase, who, wish, outcome):
    scene = Scene()
    leader, follower = scene.stable(2, protocols=RANGE)
    if phase != "Stable":
        scene.join(leader, protocols=RANGE)
    if phase == "CompletingRebalance":
        scene.join(follower, protocols=RANGE)
    assert scene.phase() == phase
    generation = scene.generation()
    member = leader if who == "leader" else follower
    reply = scene.join(member, protocols=RANGE if wish == "same" else (("range", b"new"),))
    if outcome.startswith("told"):
        assert reply["error_code"] is E.none
        assert reply["generation_id"] == generation
        assert bool(reply["members"]) == (outcome == "told with members")
        assert scene.phase() == phase
    else:
        assert scene.is_waiting(reply) or scene.generation() == generation + 1
        assert scene.phase() == "PreparingRebalance" or scene.generation() == generation + 1


def test_whoever_is_not_back_when_the_rebalance_timeout_is_over_is_out() -> None:
    scene = Scene()
    leader, follower = scene.stable(2, rebalance_ms=20_000, session_ms=60_000)
    parked = scene.join(follower, rebalance_ms=20_000, protocols=(("range", b"new"),))
    assert scene.heartbeat(leader, 1) is E.rebalance_in_progress
    scene.pass_ms(19_999)
    assert scene.is_waiting(parked)
    scene.pass_ms(1)
    answer = scene.answer(parked)
    assert (answer["leader"], answer["generation_id"]) == (follower, 2)
    assert [row["member_id"] for row in answer["members"]] == [follower]
    assert scene.heartbeat(leader, 1) is E.unknown_member_id


def test_a_join_that_is_sent_twice_leaves_nobody_waiting_for_ever() -> None:
    scene = Scene()
    member_id, first = scene.enter()
    again = scene.join(member_id)
    assert scene.answer(first)["error_code"] is E.rebalance_in_progress
    scene.pass_ms(3_000)
    assert scene.answer(again)["error_code"] is E.none


def test_of_ids_that_nobody_uses_the_oldest_is_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that asks for one in a loop would keep one for each time, for a session, and have all copied each time."""
    monkeypatch.setattr(classic_join, "PENDING_MAX", 3)
    scene = Scene()
    given = [scene.join()["member_id"] for _ in range(4)]
    assert [*scene.machine.classic.groups["g"].pending_joins] == given[1:]
    late = scene.join(given[0])
    assert (late["error_code"], late["member_id"]) == (E.unknown_member_id, given[0])
    assert isinstance(scene.join(given[1]), Parked)


def test_a_pending_member_that_never_comes_holds_nobody_up_longer_than_its_session() -> None:
    scene = Scene()
    (leader,) = scene.stable(1, session_ms=30_000)
    ghost = scene.join(client="ghost", session_ms=6_000)["member_id"]
    parked = scene.join(leader)
    scene.pass_ms(5_999)
    assert scene.is_waiting(parked), "the ghost has been promised a place"
    scene.pass_ms(1)
    assert scene.answer(parked)["generation_id"] == 2
    assert scene.join(ghost)["error_code"] is E.unknown_member_id


# -- room ----------------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_else() -> None:
    scene = Scene(GroupConfig(group_max_size=2))
    scene.stable(2)
    reply = scene.join()
    assert (reply["error_code"], reply["member_id"]) == (E.group_max_size_reached, "")


def test_while_a_full_group_gathers_the_last_to_come_lose_their_place() -> None:
    scene = Scene(GroupConfig(group_max_size=3))
    ids = scene.stable(3, session_ms=60_000)
    scene.config = GroupConfig(group_max_size=2)
    scene.reload()  # over the limit now: a rebalance sorts it out
    assert scene.phase() == "PreparingRebalance"
    scene.join(ids[2])
    scene.join(ids[1])
    late = scene.join(ids[0])
    assert late["error_code"] is E.group_max_size_reached
    assert scene.generation() == 2, "nobody else is waited for"
    assert scene.heartbeat(ids[0], 2) is E.unknown_member_id


# -- static members (KIP-345) --------------------------------------------------------------------


def static_pair() -> tuple[Scene, str, str]:
    """A stable group of two static members, i1 leading i2."""
    scene = Scene()
    first = scene.join(instance="i1")
    second = scene.join(instance="i2")
    scene.pass_ms(6_000)
    one, two = scene.answer(first)["member_id"], scene.answer(second)["member_id"]
    scene.sync(two, 1, instance="i2")
    scene.sync(one, 1, instance="i1", assign=[(one, b"1"), (two, b"2")])
    return scene, one, two


def test_a_static_member_needs_no_id_and_gets_one_with_its_instance_in_it() -> None:
    _, one, two = static_pair()
    assert (one, two) == ("i1-1", "i2-2")


def test_a_static_follower_that_restarts_gets_its_assignment_without_a_rebalance() -> None:
    scene, _, two = static_pair()
    reply = scene.join(instance="i2")
    assert (reply["error_code"], reply["member_id"]) == (E.none, "i2-3")
    assert (reply["generation_id"], reply["skip_assignment"], reply["members"]) == (1, False, [])
    assert scene.phase() == "Stable"
    assert scene.sync("i2-3", 1, instance="i2")["assignment"] == b"2"
    assert scene.heartbeat(two, 1, instance="i2") is E.fenced_instance_id
    scene.reload()
    assert scene.heartbeat("i2-3", 1, instance="i2") is E.none, "the new id was logged"


def test_a_static_leader_that_restarts_leads_on_and_need_not_assign() -> None:
    """KIP-814: it must know the members to watch their topics, and must not think that it has to assign."""
    scene, _, _ = static_pair()
    reply = scene.join(instance="i1")
    assert (reply["leader"], reply["skip_assignment"]) == (reply["member_id"], True)
    assert len(reply["members"]) == 2


def test_before_v9_a_static_leader_that_restarts_is_not_told_that_it_leads() -> None:
    scene, one, _ = static_pair()
    reply = scene.join(instance="i1", version=8)
    assert (reply["leader"], reply["skip_assignment"], reply["members"]) == (one, False, [])


def test_a_static_member_that_restarts_with_other_wishes_starts_a_rebalance() -> None:
    scene = Scene()
    both = (("range", b""), ("sticky", b""))
    first = scene.join(instance="i1", protocols=both)
    second = scene.join(instance="i2", protocols=both)
    scene.pass_ms(6_000)
    one, two = scene.answer(first)["member_id"], scene.answer(second)["member_id"]
    scene.sync(two, 1, instance="i2")
    scene.sync(one, 1, instance="i1")
    assert isinstance(scene.join(instance="i2", protocols=(("sticky", b""),)), Parked)
    assert scene.phase() == "PreparingRebalance"


def test_while_the_leader_assigns_a_static_member_that_restarts_starts_a_rebalance() -> None:
    """The assignment on its way names the old member id: nobody would have its partitions."""
    scene, one, two = static_pair()
    scene.join(one, instance="i1", protocols=(("range", b"new"),))
    scene.join(two, instance="i2")
    assert scene.phase() == "CompletingRebalance"
    synced = scene.sync(two, 2, instance="i2")
    assert isinstance(scene.join(instance="i2"), Parked)
    assert scene.answer(synced)["error_code"] is E.fenced_instance_id
    assert scene.phase() == "PreparingRebalance"


def test_of_two_clients_with_one_instance_id_the_earlier_is_fenced() -> None:
    scene = Scene()
    first = scene.join(instance="i1")
    second = scene.join(instance="i1")
    assert scene.answer(first)["error_code"] is E.fenced_instance_id
    scene.pass_ms(3_000)
    assert scene.answer(second)["error_code"] is E.none


@pytest.mark.parametrize(
    ("member_id", "instance", "error"),
    [
        ("i1-1", "i2", E.fenced_instance_id),
        ("i1-1", "i9", E.unknown_member_id),
        ("nobody", None, E.unknown_member_id),
    ],
)
def test_an_instance_is_one_member_only(member_id, instance, error) -> None:
    scene, _, _ = static_pair()
    assert scene.join(member_id, instance=instance)["error_code"] is error


def test_a_static_member_keeps_its_place_through_a_rebalance_until_its_session_ends() -> None:
    scene, one, _two = static_pair()
    parked = scene.join(one, instance="i1", protocols=(("range", b"new"),), session_ms=100_000)
    scene.pass_ms(9_999)
    assert scene.is_waiting(parked)
    scene.pass_ms(1)
    assert len(scene.answer(parked)["members"]) == 1


# -- purity --------------------------------------------------------------------------------------


def test_deciding_twice_gives_the_same_decision_and_changes_nothing() -> None:
    scene = Scene()
    leader, _ = scene.stable(2)
    before = copy.deepcopy(_state(scene))
    command = JoinGroup(
        group_id="g",
        member_id=leader,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", b"new"),),
        client_id="c",
        client_host="/h",
        ticket=99,
        fresh_id="x",
    )
    first = scene.machine.decide(command, scene.now_ms)
    second = scene.machine.decide(command, scene.now_ms)
    assert (first.reply, first.records, first.effects) == (
        second.reply,
        second.records,
        second.effects,
    )
    assert _state(scene) == before


def _state(scene: Scene) -> dict[str, dict[str, object]]:
    return {
        group_id: {name: getattr(group, name) for name in group.__slots__}
        for group_id, group in scene.machine.classic.groups.items()
    }
