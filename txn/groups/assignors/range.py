"""Kafka's range assignor: each topic is cut into as many stretches as it has subscribers, in their order.

Members with the same place in the order get the same partitions of every topic that has as many partitions and
the same subscribers: that is what a join of two topics partition by partition needs. The price is that a member
that comes or goes moves the stretches of all behind it. Static members come first, in the order of their
instance ids, so that a restart (a new member id) keeps their place.
"""

from uuid import UUID

from .spec import Assignment, GroupSpec

NAME = "range"


def assign(spec: GroupSpec) -> Assignment:
    order = sorted(spec.members, key=lambda member_id: _place(spec, member_id))
    given: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for topic_id in sorted(spec.partition_counts):
        takers = [member for member in order if topic_id in spec.members[member].subscribed]
        if not takers:
            continue
        # The first `longer` stretches are one partition longer than the others.
        length, longer = divmod(spec.partition_counts[topic_id], len(takers))
        start = 0
        for index, member_id in enumerate(takers):
            end = start + length + (index < longer)
            if start < end:
                given[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {**given}


def _place(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return instance_id is None, member_id if instance_id is None else instance_id
