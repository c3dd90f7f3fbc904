"""Groups whose members change from the classic protocol to the new one and back (KIP-848)."""

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from consumer_world import (
    GROUP,
    Client,
    MixedCoordinator,
    command,
    decode,
    request,
    subscription_bytes,
)
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.classic_group import Phase
from fencepost.txn.groups.commands import Leaving
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig, MigrationPolicy
from fencepost.txn.groups.consumer_embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from fencepost.txn.groups.consumer_member import MemberState
from fencepost.txn.groups.consumer_records import ClassicMember
from fencepost.txn.groups.consumer_turn import session_timer
from fencepost.txn.groups.records import GroupForgotten, GroupMetadata
from fencepost.txn.runtime.decision import Decision
from fencepost.txn.runtime.encoding import encode

ORDERS = UUID(int=1)


def _world(
    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
    *,
    size: int = 3,
    interval_ms: int = 0,
    **classic: int,
) -> MixedCoordinator:
    config = ConsumerConfig(
        group_consumer_assignment_interval_ms=interval_ms,
        group_consumer_assignors=("range", "uniform"),
        group_consumer_migration_policy=policy,
        group_consumer_max_size=size,
    )
    settings = GroupConfig(group_initial_rebalance_delay_ms=0, **classic)
    world = MixedCoordinator(config, settings)
    world.topics_are(orders=4, refunds=2)
    return world


@pytest.fixture
def world() -> MixedCoordinator:
    return _world()


def _stable(
    world: MixedCoordinator, partitions=(0, 1, 2, 3), user_data: bytes = b"", **how: Any
) -> str:
    """One classic member with all of `orders`; its id."""
    member_id = world.join("", ["orders"], **how)["member_id"]
    assert world.join(member_id, ["orders"], **how)["generation_id"] == 1
    assignment = write_assignment({"orders": tuple(partitions)}, 3)
    if user_data:
        assignment = assignment[:-4] + len(user_data).to_bytes(4, "big") + user_data
    assert world.sync(member_id, 1, {member_id: assignment})["error_code"] is E.none
    return member_id


def _owned(reply: Any) -> dict[str, tuple[int, ...]]:
    return dict(read_assignment(reply["assignment"]).partitions)


# ---- up -------------------------------------------------------------------------------------------


def test_the_first_member_of_the_new_protocol_takes_the_group_along(world) -> None:
    """As seen with a Kafka 4.3: the answers of each step, and what the classic member gives up."""
    a = _stable(world)
    reply = world.hear(request("c", names=["orders"]))
    assert (reply["member_epoch"], reply["assignment"]) == (2, {"topic_partitions": []})
    assert world.classic == {}
    assert world.group.members[a].classic == ClassicMember(
        session_timeout_ms=45_000, protocols=(("range", subscription_bytes(["orders"], {})),)
    )
    assert world.beat(a, 1) is E.rebalance_in_progress
    reply = world.join(a, ["orders"], {"orders": [0, 1, 2, 3]})
    assert (reply["error_code"], reply["generation_id"], reply["leader"]) == (E.none, 1, "")
    assert _owned(world.sync(a, 1)) == {"orders": (2, 3)}
    assert world.beat(a, 1) is E.rebalance_in_progress, "it has not said that it gave up"
    reply = world.join(a, ["orders"], {"orders": [2, 3]})
    assert reply["generation_id"] == 2
    assert _owned(world.sync(a, 2)) == {"orders": (2, 3)}
    assert world.beat(a, 2) is E.none
    reply = world.hear(request("c", 2))
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1]


def test_the_group_changes_its_kind_in_one_batch(world) -> None:
    _stable(world)
    decision = world.machine.decide(command(request("c", names=["orders"])), world.now_ms)
    kinds = [type(record).__name__ for record in decision.records]
    assert kinds == [
        "GroupForgotten",
        "MemberSubscribed",
        "GroupEpochBumped",
        "TargetAssigned",
        "TargetEpochReached",
        "CurrentAssigned",
        # and what the heartbeat does to it:
        "MemberSubscribed",
        "GroupEpochBumped",
        "TargetAssigned",
        "TargetAssigned",
        "TargetEpochReached",
        "CurrentAssigned",
    ]


def test_who_waits_in_the_classic_group_is_told_to_join_again(world) -> None:
    a = _stable(world)
    ticket = world.join("", ["orders"], requires_known=True, instance_id="i")
    assert isinstance(ticket, int), "it waits for the first member to join again"
    world.hear(request("c", names=["orders"]))
    assert world.answers[ticket]["error_code"] is E.rebalance_in_progress
    assert min(world.group.members) == "c"
    assert a in world.group.members


REFUSED_UPGRADES = [
    (MigrationPolicy.DISABLED, {}, "online upgrade is disabled."),
    (MigrationPolicy.DOWNGRADE, {}, "online upgrade is disabled."),
    (
        MigrationPolicy.UPGRADE,
        {"protocol_type": "connect"},
        "the group does not use the consumer embedded protocol.",
    ),
]


@pytest.mark.parametrize(("policy", "how", "why"), REFUSED_UPGRADES)
def test_a_group_that_may_not_change_refuses_the_new_protocol(policy, how, why) -> None:
    world = _world(policy)
    member_id = world.join("", ["orders"], **how)["member_id"]
    world.join(member_id, ["orders"], **how)
    reply = world.hear(request("c", names=["orders"]))
    message = f"Cannot upgrade classic group {GROUP} to consumer group because {why}"
    assert (reply["error_code"], reply["error_message"]) == (E.group_id_not_found, message)
    assert GROUP in world.classic
    reply = world.hear(request("c", 3))
    assert reply["error_message"] == f"Group {GROUP} is not a consumer group."


def test_user_data_of_a_custom_assignor_would_be_lost_so_the_group_stays(world) -> None:
    _stable(world, user_data=b"x")
    reply = world.hear(request("c", names=["orders"]))
    assert reply["error_code"] is E.group_id_not_found
    assert "an unsupported custom assignor is in use." in reply["error_message"]


def test_an_assignor_that_gave_a_partition_twice_is_no_reason_to_die(world) -> None:
    a = _stable(world)
    ticket = world.join("", ["orders"], instance_id="i")
    joined = world.join(a, ["orders"])
    b = world.answers[ticket]["member_id"]
    all_of_it = write_assignment({"orders": (0, 1, 2, 3)}, 3)
    world.sync(joined["leader"], joined["generation_id"], {a: all_of_it, b: all_of_it})
    reply = world.hear(request("c", names=["orders"]))
    assert "an unsupported custom assignor is in use." in reply["error_message"]


@pytest.mark.parametrize("partition", [-1, 4])
def test_nor_is_one_that_gave_a_partition_that_does_not_exist(partition) -> None:
    world = _world(size=9)
    a = _stable(world, (0, 1, 2, partition))
    reply = world.hear(request("c", names=["orders"], server_assignor="uniform"))
    assert reply["error_code"] is E.none
    target = [p for member_id in (a, "c") for p in world.group.target[member_id][ORDERS]]
    assert sorted(target) == [0, 1, 2, 3]


@pytest.mark.parametrize("partition", [-1, 4])
def test_nor_is_a_member_that_says_it_owns_a_partition_that_does_not_exist(partition) -> None:
    world = _world(size=9)
    owned = {"orders": [partition]}
    b = world.join("", ["orders"], owned, instance_id="i")["member_id"]
    assert world.classic[GROUP].phase is Phase.COMPLETING_REBALANCE
    reply = world.hear(request("c", names=["orders"], server_assignor="uniform"))
    assert reply["error_code"] is E.none
    target = [p for member_id in (b, "c") for p in world.group.target[member_id][ORDERS]]
    assert sorted(target) == [0, 1, 2, 3]


def test_metadata_that_can_t_be_read_is_no_reason_to_die(world) -> None:
    member_id = world.join("", [], metadata=b"\0")["member_id"]
    world.join(member_id, [], metadata=b"\0")
    reply = world.hear(request("c", names=["orders"]))
    assert "the embedded consumer protocol is malformed." in reply["error_message"]


@pytest.mark.parametrize("order", [("range", "mine"), ("mine", "range")])
def test_nor_is_metadata_of_a_protocol_that_was_not_agreed_on(world, order) -> None:
    """`a` can only "range". In the middle of a rebalance the claims of `b` are read from what it put first."""
    a = _stable(world)
    good = subscription_bytes(["orders"], {})
    metadata = {name: b"\xff" if name == "mine" else good for name in order}
    ticket = world.join("", [], protocols=order, metadata_of=metadata, instance_id="i")
    world.join(a, ["orders"])
    assert world.answers[ticket]["protocol_name"] == "range"
    assert world.classic[GROUP].phase is Phase.COMPLETING_REBALANCE
    reply = world.hear(request("c", names=["orders"]))
    assert reply["error_code"] is E.group_id_not_found
    assert "the embedded consumer protocol is malformed." in reply["error_message"]


def test_a_group_over_the_new_limit_stays_classic(world) -> None:
    a = _stable(world)
    tickets = [world.join("", ["orders"], instance_id=f"i{n}") for n in range(3)]
    assert len(world.classic[GROUP].members) == 4
    reply = world.hear(request("c", names=["orders"]))
    assert "exceeds the consumer group maximum size." in reply["error_message"]
    assert a in world.classic[GROUP].members
    assert tickets


def test_a_heartbeat_that_is_refused_changes_nothing(world) -> None:
    _stable(world)
    reply = world.hear(request("c", names=[], subscribed_topic_regex="("))
    assert reply["error_code"] is E.invalid_regular_expression
    assert world.classic[GROUP].phase is Phase.STABLE
    assert world.groups == {}


# ---- a classic member of a consumer group -----------------------------------------------------------


def _mixed(world: MixedCoordinator) -> tuple[str, int]:
    """A member `c` of the new protocol, and a classic one with 2 and 3 of `orders`; its id and generation."""
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"])["member_id"]
    generation = world.join(a, ["orders"])["generation_id"]
    world.hear(request("c", 2))
    for _ in range(2):
        kept = sorted(world.group.members["c"].assigned[ORDERS])
        world.hear(request("c", world.group.members["c"].member_epoch, holding={ORDERS: kept}))
    world.join(a, ["orders"])
    return a, generation


def test_a_new_classic_member_is_first_given_an_id(world) -> None:
    world.hear(request("c", names=["orders"]))
    reply = world.join("", ["orders"])
    assert reply["error_code"] is E.member_id_required
    assert list(world.group.members) == ["c"]
    reply = world.join(reply["member_id"], ["orders"])
    assert (reply["generation_id"], reply["protocol_name"]) == (3, "range")


def test_a_classic_member_must_share_a_protocol_with_the_others(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"])["member_id"]
    world.join(a, ["orders"], protocols=("range", "sticky"))
    for protocols, how, expected in (
        (("roundrobin",), {}, E.inconsistent_group_protocol),
        (("sticky",), {"protocol_type": "connect"}, E.inconsistent_group_protocol),
        (("sticky",), {"metadata": b"\0"}, E.unknown_server_error),
        (("roundrobin", "sticky"), {}, E.none),
    ):
        reply = world.join("b", ["orders"], protocols=protocols, **how)
        assert reply["error_code"] is expected, protocols


def test_a_protocol_that_can_t_be_read_is_refused_wherever_it_stands(world) -> None:
    """A classic group may agree on any of them, and Kafka reads the first only. Seen to end every coordinator."""
    world.hear(request("c", names=["orders"]))
    protocols = {"range": subscription_bytes(["orders"], {}), "roundrobin": b""}
    a = world.join("", [], protocols=tuple(protocols), metadata_of=protocols)["member_id"]
    reply = world.join(a, [], protocols=tuple(protocols), metadata_of=protocols)
    assert reply["error_code"] is E.unknown_server_error
    assert list(world.group.members) == ["c"]


def test_a_purely_classic_group_takes_any_bytes(world) -> None:
    for metadata in ({"range": b""}, {"mine": b"\xff\xff", "range": b"?"}):
        how = {"protocols": tuple(metadata), "metadata_of": metadata}
        a = world.join("", [], **how)["member_id"]
        assert world.join(a, [], **how)["error_code"] is E.none
        world.leave(a)


def test_a_full_group_takes_no_classic_member_either(world) -> None:
    for member_id in ("c1", "c2", "c3"):
        world.hear(request(member_id, names=["orders"]))
    assert world.join("a", ["orders"])["error_code"] is E.group_max_size_reached


def test_who_speaks_with_the_wrong_words_is_told_so(world) -> None:
    a, generation = _mixed(world)
    assert world.beat("nobody", generation) is E.unknown_member_id
    assert world.beat("c", 3) is E.unknown_member_id, "it speaks the other protocol"
    assert world.beat(a, generation + 1) is E.illegal_generation
    assert world.sync(a, generation - 1)["error_code"] is E.illegal_generation
    wrong = world.sync(a, generation, protocol_name="sticky")
    assert wrong["error_code"] is E.inconsistent_group_protocol
    wrong = world.sync(a, generation, protocol_type="connect")
    assert wrong["error_code"] is E.inconsistent_group_protocol
    assert world.sync(a, generation)["error_code"] is E.none


def test_a_classic_member_waits_for_what_others_still_have(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"])["member_id"]
    generation = world.join(a, ["orders"])["generation_id"]
    assert world.group.members[a].state is MemberState.UNRELEASED_PARTITIONS
    assert _owned(world.sync(a, generation)) == {}
    assert world.beat(a, generation) is E.none, "there is nothing to join again for yet"
    world.hear(request("c", 2))
    kept = sorted(world.group.members["c"].assigned[ORDERS])
    world.hear(request("c", 2, holding={ORDERS: kept}))
    assert world.beat(a, generation) is E.rebalance_in_progress
    generation = world.join(a, ["orders"])["generation_id"]
    assert len(_owned(world.sync(a, generation))["orders"]) == 2


def test_a_classic_member_s_own_session_timeout_counts(world) -> None:
    world.hear(request("c", names=["orders"]))
    world.sleep(40_000)
    world.hear(request("c", 2))
    a = world.join("", ["orders"])["member_id"]
    world.join(a, ["orders"], session_timeout_ms=10_000)
    world.sleep(9_999)
    assert a in world.group.members
    world.sleep(1)
    assert a not in world.group.members


def test_a_classic_member_that_does_not_join_again_in_time_is_thrown_out(world) -> None:
    a, generation = _mixed(world)
    world.sync(a, generation)
    world.hear(request("d", names=["orders"]))
    for _ in range(6):
        assert world.beat(a, generation) is E.rebalance_in_progress
        world.sleep(9_999)
        for member_id in ("c", "d"):
            world.hear(request(member_id, names=["orders"]))
    assert a in world.group.members
    world.sleep(1_000)
    assert a not in world.group.members
    assert sorted(world.group.members) == ["c", "d"]


def test_a_classic_member_that_does_not_sync_in_time_is_thrown_out(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"])["member_id"]
    generation = world.join(a, ["orders"], session_timeout_ms=300_000)["generation_id"]
    for _ in range(2):
        world.sleep(29_999)
        world.beat(a, generation)
        world.hear(request("c", names=["orders"]))
    assert a in world.group.members
    world.sleep(2)
    assert a not in world.group.members


def test_members_of_both_protocols_are_taken_out_by_leave_group(world) -> None:
    a, _ = _mixed(world)
    world.hear(request("s", names=["orders"], instance_id="i"))
    reply = world.leave(a, "nobody", Leaving("", "i"), Leaving("x", "j"))
    codes = [row["error_code"] for row in reply["members"]]
    assert codes == [E.none, E.unknown_member_id, E.none, E.unknown_member_id]
    assert list(world.group.members) == ["c"]


def test_a_static_member_changes_its_protocol_without_leaving(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"], instance_id="i")["member_id"]
    reply = world.hear(request("b", names=["orders"], instance_id="i"))
    assert reply["error_code"] is E.none
    assert sorted(world.group.members) == ["b", "c"]
    assert a not in world.group.members
    assert world.group.members["b"].classic is None


# ---- down -----------------------------------------------------------------------------------------


def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_leaves(world) -> None:
    a, generation = _mixed(world)
    assert world.hear(request("c", -1))["error_code"] is E.none
    assert world.groups == {}
    group = world.classic[GROUP]
    assert (group.phase, group.generation_id) == (Phase.PREPARING_REBALANCE, 3)
    assert read_assignment(group.members[a].assignment).partitions == {"orders": (2, 3)}
    assert world.beat(a, generation) is E.rebalance_in_progress
    reply = world.join(a, ["orders"])
    assert (reply["generation_id"], reply["leader"]) == (4, a)


@pytest.mark.parametrize("how", ["session", "leave_group"])
def test_it_is_the_same_however_the_last_one_goes(world, how) -> None:
    a, generation = _mixed(world)
    if how == "leave_group":
        world.leave("c")
    else:
        for _ in range(5):
            world.sleep(10_000)
            world.beat(a, generation)
    assert list(world.classic[GROUP].members) == [a]


def test_a_takeover_before_the_classic_members_have_joined_again_leaves_nothing_unread(
    world,
) -> None:
    """What `c` had nobody has; the members that are left have the generation that the log knows."""
    a, generation = _mixed(world)
    world.hear(request("c", -1))
    world.fail_over()
    assert world.beat(a, generation) is E.rebalance_in_progress
    reply = world.join(a, ["orders"])
    assert (reply["generation_id"], reply["leader"]) == (generation + 1, a)


def test_nor_does_it_wait_for_ever_for_one_that_does_not_join(world) -> None:
    a, generation = _mixed(world)
    world.hear(request("c", -1))
    world.fail_over()
    for _ in range(3):
        world.sleep(20_000)
        assert world.beat(a, generation) is not E.none
    assert world.classic[GROUP].phase is Phase.EMPTY


@pytest.mark.parametrize("how", ["leave", "session", "sync"])
def test_a_stored_member_whose_protocol_can_t_be_read_is_no_reason_to_die(world, how) -> None:
    """As Kafka stores them, and as this did: the timer of `c` ended one coordinator after the other."""
    a, generation = _mixed(world)
    member = world.group.members[a]
    classic = ClassicMember(session_timeout_ms=1_800_000, protocols=(("range", b""),))
    stored = replace(member, classic=classic).subscribed_record(GROUP)
    world.run(Decision(records=(stored,)))
    world.fail_over()
    if how == "sync":
        assignment = world.sync(a, generation)["assignment"]
    else:
        world.hear(request("c", -1)) if how == "leave" else world.sleep(44_999)
        world.sleep(1)
        assignment = world.classic[GROUP].members[a].assignment
    assert assignment == write_assignment({"orders": (2, 3)}, 0)


@pytest.mark.parametrize(
    ("policy", "limit"), [(MigrationPolicy.UPGRADE, 9), (MigrationPolicy.BIDIRECTIONAL, 0)]
)
def test_a_group_that_may_not_go_back_stays_as_it_is(policy, limit) -> None:
    world = _world(policy, group_max_size=limit)
    a, generation = _mixed(world)
    world.hear(request("c", -1))
    assert list(world.group.members) == [a]
    assert world.group.epoch > generation
    generation = _joined_when_told(world, a, generation)
    assert _has_all(world, a)
    world.topics_are(orders=6)
    _joined_when_told(world, a, generation)
    assert _has_all(world, a)


def _joined_when_told(world: MixedCoordinator, member_id: str, generation: int) -> int:
    """The generation of a classic member that has nothing left to join for."""
    for _ in range(4):
        world.sleep(3_000)
        code = world.beat(member_id, generation)
        if code is E.none:
            break
        assert code is E.rebalance_in_progress
        assigned = world.group.members[member_id].assigned
        held = [p for partitions in assigned.values() for p in partitions]
        generation = world.join(member_id, ["orders"], {"orders": sorted(held)})["generation_id"]
        world.sync(member_id, generation)
    assert code is E.none, "it is told again and again"
    return generation


def _has_all(world: MixedCoordinator, *member_ids: str) -> bool:
    owned = world.topics.all_of(["orders"])
    return set(world.group.owners) == owned and set(world.group.owners.values()) == set(member_ids)


@pytest.mark.parametrize("how", ["silence", "leave_group", "coordinator_moves"])
def test_what_the_last_of_the_new_protocol_had_goes_to_the_classic_members(how) -> None:
    """Kafka 4.3 asks for no new target then, and nobody reads it."""
    world = _world(MigrationPolicy.UPGRADE)
    a, generation = _mixed(world)
    if how == "silence":
        for _ in range(5):
            world.sleep(9_000)
            world.beat(a, generation)
    else:
        world.leave("c")
    if how == "coordinator_moves":
        world.fail_over()
    assert list(world.group.members) == [a]
    _joined_when_told(world, a, generation)
    assert _has_all(world, a)


@pytest.mark.parametrize("moves", [False, True])
def test_partitions_that_come_later_are_seen_without_a_member_of_the_new_protocol(moves) -> None:
    world = _world(MigrationPolicy.UPGRADE)
    a, generation = _mixed(world)
    world.leave("c")
    generation = _joined_when_told(world, a, generation)
    world.change(world.topics.grow("orders", 2))
    if moves:
        world.fail_over()
    generation = _joined_when_told(world, a, generation)
    assert _has_all(world, a)
    written = len(world.log)
    world.beat(a, generation)
    assert len(world.log) == written, "what it saw, it saw once"


def test_two_classic_members_alone_share_what_was_left() -> None:
    world = _world(MigrationPolicy.UPGRADE, interval_ms=1_000)
    a, _ = _mixed(world)
    world.leave("c")
    b = world.join("", ["orders"])["member_id"]
    of_b = world.join(b, ["orders"])["generation_id"]  # too soon for the assignor to be asked
    world.sync(b, of_b)
    of_a = world.group.members[a].member_epoch
    assert (world.beat(a, of_a), world.beat(b, of_b)) == (E.none, E.none), "they would join in vain"
    for _ in range(2):
        of_a = _joined_when_told(world, a, of_a)
        of_b = _joined_when_told(world, b, of_b)
    assert _has_all(world, a, b)


def test_classic_members_leave_it_to_one_of_the_new_protocol_to_see_new_partitions(world) -> None:
    """As with Kafka 4.3. Its next heartbeat makes the target; until then there is nothing to join for."""
    a, generation = _mixed(world)
    world.change(world.topics.grow("orders", 2))
    written = len(world.log)
    assert world.beat(a, generation) is E.none
    assert len(world.log) == written
    world.hear(request("c", world.group.members["c"].member_epoch))
    assert world.beat(a, generation) is E.rebalance_in_progress


def test_the_last_one_that_comes_back_as_classic_makes_the_group_classic(world) -> None:
    a, _generation = _mixed(world)
    world.hear(request("s", names=["refunds"], instance_id="i"))
    world.join(a, ["orders"])
    world.hear(request("c", -1))
    world.hear(request("s", -2, instance_id="i"))
    world.join(a, ["orders"], {"orders": [2, 3]})
    reply = world.join("", ["refunds"], instance_id="i")
    b = reply["member_id"]
    group = world.classic[GROUP]
    assert sorted(group.members) == sorted((a, b))
    assert reply["error_code"] is E.none


def test_a_member_that_has_not_given_up_makes_everybody_join_again(world) -> None:
    """Kafka 4.3 makes a stable generation of it, with one partition in two hands."""
    a = _stable(world)
    world.hear(request("s", names=["orders"], instance_id="i"))
    assert world.beat(a, 1) is E.rebalance_in_progress  # and it goes on reading all four
    world.hear(request("s", -2, instance_id="i"))
    b = world.join("", ["orders"], instance_id="i")["member_id"]
    assert world.classic[GROUP].phase is Phase.PREPARING_REBALANCE
    assert (
        world.sync(b, world.classic[GROUP].generation_id)["error_code"] is E.rebalance_in_progress
    )


def test_an_empty_group_changes_its_kind_without_ado(world) -> None:
    world.hear(request("c", names=["orders"]))
    world.hear(request("c", -1))
    a = world.join("", ["orders"])["member_id"]
    world.join(a, ["orders"])
    assert world.groups == {}
    world.leave(a)
    assert world.hear(request("c", names=["orders"]))["error_code"] is E.none
    assert world.classic == {}


# ---- at random ------------------------------------------------------------------------------------


class ClassicClient:
    """A consumer of the classic protocol, which leads with ranges when it is asked to.

    An eager one gives up everything before it joins. A cooperative one keeps it, says so, and joins once more
    when it was told to give something up.
    """

    def __init__(self, rng: random.Random, world: MixedCoordinator, *, eager: bool) -> None:
        self.rng, self.world, self.eager = rng, world, eager
        self.member_id = ""
        self.generation = -1
        self.held: set[tuple[UUID, int]] = set()
        self.topics = rng.choice((["orders"], ["orders", "refunds"]))
        self.ticket: int | None = None
        self.step = "join"
        self.members: list[Any] = []

    def beat(self) -> None:
        if self.ticket is not None:
            reply = self.world.answers.pop(self.ticket, None)
            if reply is None:
                return
            self.ticket = None
            self.take(reply)
        elif self.step == "join":
            if self.eager:
                self.held.clear()
            self.hear(self.world.join(self.member_id, self.topics, self.owned()))
        elif self.step == "sync":
            self.hear(self.world.sync(self.member_id, self.generation, self.shares()))
        else:
            code = self.world.beat(self.member_id, self.generation)
            if code is not E.none:
                self.fail(code)

    def hear(self, reply: Any) -> None:
        if isinstance(reply, int):
            self.ticket = reply
        else:
            self.take(reply)

    def take(self, reply: Any) -> None:
        if reply["error_code"] is not E.none:
            self.member_id = reply.get("member_id") or self.member_id
            self.fail(reply["error_code"])
        elif self.step == "join":
            self.member_id, self.generation = reply["member_id"], reply["generation_id"]
            self.members = reply["members"]
            self.step = "sync"
        else:
            given = read_assignment(reply["assignment"]).partitions if reply["assignment"] else {}
            by_name = self.world.topics.found
            before, self.held = (
                self.held,
                {
                    (by_name[topic].topic_id, partition)
                    for topic, partitions in given.items()
                    for partition in partitions
                },
            )
            self.step = "join" if before - self.held and not self.eager else "steady"

    def owned(self) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for topic_id, partition in sorted(self.held):
            topic = self.world.topics.by_id(topic_id)
            assert topic is not None
            owned.setdefault(topic.name, []).append(partition)
        return owned

    def fail(self, code: E) -> None:
        self.step = "join"
        if self.eager or code not in (E.rebalance_in_progress, E.member_id_required):
            self.held.clear()
        if code is E.unknown_member_id:
            self.member_id = ""
        else:
            assert code in (
                E.member_id_required,
                E.rebalance_in_progress,
                E.illegal_generation,
            ), code

    def shares(self) -> dict[str, bytes]:
        said = {m["member_id"]: read_subscription(m["metadata"]) for m in self.members}
        shares: dict[str, dict[str, tuple[int, ...]]] = {member_id: {} for member_id in said}
        for topic in ("orders", "refunds"):
            takers = sorted(m for m, subscription in said.items() if topic in subscription.topics)
            count = self.world.topics.found[topic].partition_count
            # What another still holds is given in the round after (KIP-429).
            held = {p: m for m in sorted(said) for p in said[m].owned.get(topic, ())}
            for place, member_id in enumerate(takers):
                share = range(place, count, len(takers))
                mine = [p for p in share if held.get(p, member_id) == member_id]
                shares[member_id][topic] = tuple(mine)
        return {member_id: write_assignment(share, 3) for member_id, share in shares.items()}


class Run:
    def __init__(self, seed: int, policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> None:
        self.rng = random.Random(seed)
        self.world = _world(policy, size=9)
        self.serial = 0
        self.eager = self.rng.random() < 0.5
        self.old: list[ClassicClient] = []
        self.new: list[Client] = []

    def step(self) -> None:
        world, dice = self.world, self.rng.random()
        if dice < 0.08 and len(self.old) + len(self.new) < 3:
            self.old.append(ClassicClient(self.rng, world, eager=self.eager))
        elif dice < 0.16 and len(self.old) + len(self.new) < 3:
            self.serial += 1
            client = Client(self.rng, f"c{self.serial}")
            client.names = self.rng.choice((("orders",), ("orders", "refunds")))
            self.new.append(client)
        elif dice < 0.55 and self.old:
            self.rng.choice(self.old).beat()
        elif dice < 0.85 and self.new:
            self.rng.choice(self.new).beat(world, lose_answer=self.rng.random() < 0.1)
        elif dice < 0.9 and self.new:
            client = self.new.pop(self.rng.randrange(len(self.new)))
            if client.epoch > 0 and self.rng.random() < 0.8:
                world.hear(request(client.member_id, -1))
        elif dice < 0.94 and self.old:
            client = self.old.pop(self.rng.randrange(len(self.old)))
            if client.member_id and self.rng.random() < 0.8:
                world.leave(client.member_id)
        elif dice < 0.96:
            world.fail_over()
        else:
            world.sleep(self.rng.choice((1_000, 10_000, 46_000)))
        self.check()

    def check(self) -> None:
        world = self.world
        assert not (GROUP in world.groups and GROUP in world.classic), "one name, one kind"
        group = world.groups.get(GROUP)
        if group is not None:
            owners: dict[tuple[UUID, int], str] = {}
            for member in group.members.values():
                for part in (member.assigned, member.pending_revocation):
                    for topic, partitions in part.items():
                        for partition in partitions:
                            assert (topic, partition) not in owners
                            owners[topic, partition] = member.member_id
        known = {} if group is None else group.members
        classic = world.classic.get(GROUP)
        members = known if classic is None else classic.members
        # Whoever is a member still, and was not thrown out meanwhile to come back later, reads alone.
        readers: dict[tuple[UUID, int], str] = {}
        for client in [*self.old, *self.new]:
            if client.member_id not in members:
                continue
            for owned in client.held:
                other = readers.setdefault(owned, client.member_id)
                assert other == client.member_id, (
                    f"{owned} is read by {other} and {client.member_id}"
                )

    def settle(self) -> bool:
        for client in self.new:
            client.rng = random.Random(0)
        for _ in range(40):
            self.world.sleep(3_000)
            for client in self.old:
                client.beat()
            for client in self.new:
                client.beat(self.world)
            self.check()
        topics = {name for client in self.old for name in client.topics}
        topics |= {name for client in self.new for name in client.names or ()}
        held = {owned for client in [*self.old, *self.new] for owned in client.held}
        return held == self.world.topics.all_of(topics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "seeds"), [(MigrationPolicy.BIDIRECTIONAL, 150), (MigrationPolicy.UPGRADE, 50)]
)
def test_no_partition_has_two_owners_while_members_change_protocols(policy, seeds) -> None:
    for seed in range(seeds):
        run = Run(seed, policy)
        for _ in range(80):
            run.step()
        assert run.settle(), f"seed {seed}: something is read by nobody"


@pytest.mark.slow
def test_a_group_that_changed_its_kind_is_the_same_after_a_replay() -> None:
    changes = 0
    for seed in range(40):
        run = Run(seed)
        for _ in range(60):
            run.step()
            for compacted in (False, True):
                replayed = run.world.replayed(compacted=compacted)
                assert replayed.consumer.groups == run.world.groups
                stable = {
                    group_id: group.record()
                    for group_id, group in run.world.classic.items()
                    if group.phase is Phase.STABLE
                }
                for group_id, record in stable.items():
                    assert replayed.classic.groups[group_id].record() == record
        kinds = [type(decode(*entry)) for entry in run.world.log]
        changes += kinds.count(GroupForgotten) + kinds.count(GroupMetadata)
    assert changes > 40, "groups did change their kind"


# ---- more than a record holds ---------------------------------------------------------------------

MANY = [f"{'x' * 34}-{number:05}" for number in range(2_000)]


def test_a_group_that_fits_no_batch_is_not_taken_along_by_half() -> None:
    """Two batches, with a crash between them: some members were known, owned nothing, and the others' partitions were given away."""
    world = _world(size=10)
    world.topics_are(**dict.fromkeys(MANY, 1))
    how = {"protocols": ("range", "cooperative-sticky"), "metadata": subscription_bytes(MANY, {})}
    members = [world.join("", MANY, **how)["member_id"] for _ in range(6)]
    for member_id in members:
        world.join(member_id, MANY, **how)
    decision = world.machine.decide(command(request("c", names=MANY)), world.now_ms)
    assert decision.whole
    assert len(encode(decision.records, world.now_ms, None)) > 1


def test_the_last_of_the_new_protocol_is_taken_out_of_a_group_that_fits_no_classic_record() -> None:
    """What it was to become was refused every half a second, and its partitions had no reader."""
    world = _world(size=20)
    world.topics_are(**dict.fromkeys(MANY, 1))
    world.hear(request("c", names=MANY))
    data = subscription_bytes(MANY, {})
    for _ in range(13):
        who = world.join("", MANY, metadata=data)["member_id"]
        world.join(who, MANY, metadata=data)
    decision = world.machine.tick(session_timer(GROUP, "c"), world.now_ms)
    assert isinstance(encode(decision.records, world.now_ms, None), list)
    assert not decision.whole
