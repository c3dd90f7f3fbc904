"""Sessions, rebalances and assignment intervals of the new protocol, by a clock that is moved."""

import pytest
from consumer_world import GROUP, Coordinator, request
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.consumer_group import GroupState
from fencepost.txn.groups.consumer_member import MemberState
from heartbeat_scene import ORDERS, joined, two_topics


@pytest.fixture
def world() -> Coordinator:
    return two_topics()


def test_a_silent_member_is_gone_after_its_session_and_its_partitions_are_free(world) -> None:
    joined(world, "m1", "m2")
    world.sleep(30_000)
    epoch = world.hear(request("m2", 3))["member_epoch"]
    world.sleep(15_000)
    assert list(world.group.members) == ["m2"]
    reply = world.hear(request("m2", epoch))
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3]


def test_a_member_that_does_not_give_up_in_time_is_thrown_out(world) -> None:
    joined(world, "m1", rebalance_timeout_ms=20_000)
    joined(world, "m2")
    world.hear(request("m1", 2))
    assert world.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    world.sleep(15_000)
    world.hear(request("m1", 2, holding={ORDERS: {0, 1, 2, 3}}))
    world.sleep(5_000)
    assert list(world.group.members) == ["m2"]
    assert world.hear(request("m1", 2))["error_code"] is E.unknown_member_id


def test_a_member_that_gives_up_in_time_stays(world) -> None:
    joined(world, "m1", rebalance_timeout_ms=20_000)
    joined(world, "m2")
    world.hear(request("m1", 2))
    kept = set(world.group.members["m1"].assigned[ORDERS])
    world.hear(request("m1", 2, holding={ORDERS: kept}))
    world.sleep(30_000)
    assert sorted(world.group.members) == ["m1", "m2"]


def test_an_assignment_waits_for_the_interval_since_the_last_one() -> None:
    """KIP-1263: a second member within a second of the first is a member at once and served later."""
    world = Coordinator(ConsumerConfig())
    world.topics_are(orders=4)
    assert joined(world, "m1") == 2
    reply = world.hear(request("m2", names=["orders"]))
    assert (reply["member_epoch"], reply["assignment"]) == (2, {"topic_partitions": []})
    assert world.group.state is GroupState.ASSIGNING
    world.sleep(999)
    assert world.hear(request("m2", 2))["member_epoch"] == 2
    world.sleep(1)
    assert world.hear(request("m2", 2))["member_epoch"] == 3


def test_a_clock_that_is_set_back_does_not_hold_up_an_assignment() -> None:
    """The time of the last one is in the log, and the next coordinator's clock may be behind too."""
    world = Coordinator(ConsumerConfig())
    world.topics_are(orders=4)
    assert joined(world, "m1") == 2
    world.now_ms -= 600_000
    reply = world.hear(request("m2", names=["orders"]))
    assert reply["member_epoch"] == 3
    reply = world.hear(request("m3", names=["orders"]))
    assert reply["member_epoch"] == 3, "the interval is kept from there on"
    world.sleep(1_000)
    assert world.hear(request("m3", 3))["member_epoch"] == 4


def test_a_group_s_own_times_are_in_force_and_held_to_the_broker_s_bounds(world) -> None:
    world.overrides[GROUP] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "99999",
    }
    reply = world.hear(request("m", names=["orders"]))
    assert reply["heartbeat_interval_ms"] == 15_000
    world.sleep(49_999)
    assert list(world.group.members) == ["m"]
    world.sleep(1)
    assert list(world.group.members) == []
