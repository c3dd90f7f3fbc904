"""Commits that come late, by a member of the new protocol (KIP-848) whose partition another member owns by then. Kafka lets some in."""

from uuid import UUID

import pytest
from consumer_world import GROUP, Coordinator, request
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.commands import Commit, OffsetCommit
from fencepost.txn.groups.consumer_config import ConsumerConfig

ORDERS = UUID(int=1)


def _commit(member_id: str, epoch: int, partition: int) -> OffsetCommit:
    return OffsetCommit(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        api_version=9,
        commits=(Commit("orders", ORDERS, partition, 1, -1, ""),),
    )


def _world() -> Coordinator:
    world = Coordinator(ConsumerConfig(group_consumer_assignment_interval_ms=5_000))
    world.topics_are(orders=1, other=1)
    return world


@pytest.mark.parametrize("at_once", [False, True])
def test_who_has_unsubscribed_and_given_up_a_partition_commits_it_no_more(at_once: bool) -> None:
    world = _world()
    first = world.hear(request("m1", names=["orders"]))
    epoch = first["member_epoch"]
    assert (ORDERS, 0) in world.group.owners
    held = {} if at_once else None
    world.hear(request("m1", epoch, names=["other"], holding=held))
    if not at_once:
        assert world.machine.refuse_commit(_commit("m1", epoch, 0)) is E.none
        world.hear(request("m1", epoch, holding={}))
    assert world.group.members["m1"].member_epoch == epoch
    assert (ORDERS, 0) not in world.group.owners
    world.sleep(6_000)
    second = world.hear(request("m2", names=["orders"]))
    assert world.group.owners[ORDERS, 0] == "m2", second
    assert world.machine.refuse_commit(_commit("m2", second["member_epoch"], 0)) is E.none
    assert world.machine.refuse_commit(_commit("m1", epoch, 0)) is E.stale_member_epoch


def test_nor_does_who_has_left_and_is_back_with_the_epoch_of_its_first_life() -> None:
    world = _world()
    epoch = world.hear(request("m1", names=["orders"]))["member_epoch"]
    assert world.group.owners[ORDERS, 0] == "m1"
    world.hear(request("m1", -1))
    again = world.hear(request("m1", names=["other"]))
    assert again["member_epoch"] == epoch, "the first life's epoch"
    world.sleep(6_000)
    world.hear(request("m2", names=["orders"]))
    assert world.group.owners[ORDERS, 0] == "m2"
    assert world.machine.refuse_commit(_commit("m1", epoch, 0)) is E.stale_member_epoch


def test_nor_does_a_static_member_with_an_epoch_of_before_another_one_had_it() -> None:
    """orders-0: m1 (old epoch) -> m2 -> m1 again; then m1 says -2 and is back under its id (poll timeout)."""
    world = Coordinator()
    world.topics_are(orders=1)
    old = world.hear(request("m1", names=["orders"], instance_id="i"))["member_epoch"]
    world.hear(request("m1", old, names=["none"], holding={}))
    world.hear(request("m2", names=["orders"]))["member_epoch"]
    assert world.group.owners[ORDERS, 0] == "m2"
    world.hear(request("m2", -1))
    now = world.group.members["m1"].member_epoch
    now = world.hear(request("m1", now, instance_id="i", names=["orders"], holding={}))[
        "member_epoch"
    ]
    assert world.group.owners[ORDERS, 0] == "m1"
    assert world.machine.refuse_commit(_commit("m1", old, 0)) is E.stale_member_epoch
    world.hear(request("m1", -2, instance_id="i"))
    world.hear(request("m1", 0, instance_id="i", names=["orders"]))
    assert world.machine.refuse_commit(_commit("m1", old, 0)) is E.stale_member_epoch
