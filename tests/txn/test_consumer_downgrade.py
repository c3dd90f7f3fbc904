"""A group whose last member of the new protocol goes: classic again, or not, nothing of it is left unread (KIP-848)."""

from dataclasses import replace

import pytest
from consumer_world import GROUP, MixedCoordinator, request, subscription_bytes
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.classic_group import Phase
from fencepost.txn.groups.consumer_config import MigrationPolicy
from fencepost.txn.groups.consumer_embedded import read_assignment, write_assignment
from fencepost.txn.groups.consumer_records import ClassicMember
from fencepost.txn.groups.consumer_turn import session_timer
from fencepost.txn.runtime.decision import Decision
from fencepost.txn.runtime.encoding import encode
from migration_world import MANY, mixed_group, mixed_world, stable_classic


@pytest.fixture
def world() -> MixedCoordinator:
    return mixed_world()


def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_leaves(world) -> None:
    a, generation = mixed_group(world)
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
    a, generation = mixed_group(world)
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
    a, generation = mixed_group(world)
    world.hear(request("c", -1))
    world.fail_over()
    assert world.beat(a, generation) is E.rebalance_in_progress
    reply = world.join(a, ["orders"])
    assert (reply["generation_id"], reply["leader"]) == (generation + 1, a)


def test_nor_does_it_wait_for_ever_for_one_that_does_not_join(world) -> None:
    a, generation = mixed_group(world)
    world.hear(request("c", -1))
    world.fail_over()
    for _ in range(3):
        world.sleep(20_000)
        assert world.beat(a, generation) is not E.none
    assert world.classic[GROUP].phase is Phase.EMPTY


@pytest.mark.parametrize("how", ["leave", "session", "sync"])
def test_a_stored_member_whose_protocol_can_t_be_read_is_no_reason_to_die(world, how) -> None:
    """As Kafka stores them, and as this did: the timer of `c` ended one coordinator after the other."""
    a, generation = mixed_group(world)
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
    world = mixed_world(policy, group_max_size=limit)
    a, generation = mixed_group(world)
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
    world = mixed_world(MigrationPolicy.UPGRADE)
    a, generation = mixed_group(world)
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
    world = mixed_world(MigrationPolicy.UPGRADE)
    a, generation = mixed_group(world)
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
    world = mixed_world(MigrationPolicy.UPGRADE, interval_ms=1_000)
    a, _ = mixed_group(world)
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
    a, generation = mixed_group(world)
    world.change(world.topics.grow("orders", 2))
    written = len(world.log)
    assert world.beat(a, generation) is E.none
    assert len(world.log) == written
    world.hear(request("c", world.group.members["c"].member_epoch))
    assert world.beat(a, generation) is E.rebalance_in_progress


def test_the_last_one_that_comes_back_as_classic_makes_the_group_classic(world) -> None:
    a, _generation = mixed_group(world)
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
    a = stable_classic(world)
    world.hear(request("s", names=["orders"], instance_id="i"))
    assert world.beat(a, 1) is E.rebalance_in_progress  # and it goes on reading all four
    world.hear(request("s", -2, instance_id="i"))
    b = world.join("", ["orders"], instance_id="i")["member_id"]
    assert world.classic[GROUP].phase is Phase.PREPARING_REBALANCE
    assert (
        world.sync(b, world.classic[GROUP].generation_id)["error_code"] is E.rebalance_in_progress
    )


# ---- more than a record holds ---------------------------------------------------------------------


def test_the_last_of_the_new_protocol_is_taken_out_of_a_group_that_fits_no_classic_record() -> None:
    """What it was to become was refused every half a second, and its partitions had no reader."""
    world = mixed_world(size=20)
    world.topics_are(**dict.fromkeys(MANY, 1))
    world.hear(request("c", names=MANY))
    data = subscription_bytes(MANY, {})
    for _ in range(13):
        who = world.join("", MANY, metadata=data)["member_id"]
        world.join(who, MANY, metadata=data)
    decision = world.machine.tick(session_timer(GROUP, "c"), world.now_ms)
    assert isinstance(encode(decision.records, world.now_ms, None), list)
    assert not decision.whole
