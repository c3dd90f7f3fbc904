"""Members of a group that reads two topics, by their heartbeats."""

from uuid import UUID

from consumer_world import Coordinator, request
from fencepost.cluster.base.errors import ErrorCode as E

ORDERS, REFUNDS = UUID(int=1), UUID(int=2)


def two_topics() -> Coordinator:
    coordinator = Coordinator()
    coordinator.topics_are(orders=4, refunds=2)
    return coordinator


def joined(world: Coordinator, *member_ids: str, **fields) -> int:
    epoch = 0
    for member_id in member_ids:
        epoch = world.hear(request(member_id, names=["orders"], **fields))["member_epoch"]
    return epoch


def refusal_of(reply) -> tuple[E, str]:
    return reply["error_code"], reply["error_message"]
