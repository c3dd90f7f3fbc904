"""A coordinator of groups of both protocols, and groups that are about to change theirs."""

from typing import Any
from uuid import UUID

from consumer_world import MixedCoordinator, request
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig, MigrationPolicy
from fencepost.txn.groups.consumer_embedded import read_assignment, write_assignment

ORDERS = UUID(int=1)


def mixed_world(
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


def stable_classic(
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


def owned_by(reply: Any) -> dict[str, tuple[int, ...]]:
    return dict(read_assignment(reply["assignment"]).partitions)


def mixed_group(world: MixedCoordinator) -> tuple[str, int]:
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


MANY = [f"{'x' * 34}-{number:05}" for number in range(2_000)]
