"""From a group epoch to a target assignment: ask the assignor, and write down what is new in its answer.

INVARIANT  a target gives every partition of every subscribed topic that exists to one member that wants it.
PREVENTS   records that nobody reads while the group looks stable.
PROVED BY  tests/txn/test_consumer_simulation.py::test_a_group_left_alone_owns_every_partition_of_its_topics
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from .assignors import range as range_assignor
from .assignors import uniform
from .assignors.spec import (
    Assignment,
    Assignor,
    GroupSpec,
    MemberSpec,
    Partitions,
    check_assignment,
)
from .consumer_group import ConsumerGroup
from .consumer_member import Member
from .consumer_records import ConsumerRecord, TargetAssigned, TargetEpochReached
from .consumer_topics import Topics

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    uniform.NAME: uniform.assign,
    range_assignor.NAME: range_assignor.assign,
}


def preferred_assignor(
    group: ConsumerGroup, allowed: Sequence[str], before: Member, after: Member
) -> str:
    """The one that most members ask for, once `before` has become `after`; by default the first allowed."""
    votes: Counter[str] = Counter()
    for member in group.members.values():
        votes[member.server_assignor or ""] += 1
    if before.member_id in group.members or group.static_member(before.instance_id) is not None:
        votes[before.server_assignor or ""] -= 1
    votes[after.server_assignor or ""] += 1
    # A vote of before the settings changed, or of a Kafka with more assignors, may name none of ours.
    named = [(-count, name) for name, count in votes.items() if name in allowed and count > 0]
    return min(named)[1] if named else allowed[0]


def group_spec(group: ConsumerGroup, updated: Member, topics: Topics) -> GroupSpec:
    """What the assignor is told: the members as they are, `updated` as it is about to be.

    A static member that is back under a new id takes over what its old self was to have.
    """
    members = dict(group.members)
    if updated.instance_id is not None:
        members.pop(group.static_members.get(updated.instance_id, ""), None)
    members[updated.member_id] = updated
    counts: dict[UUID, int] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id in sorted(members):
        member = members[member_id]
        wanted = set()
        for name in group.subscription(member):
            topic = topics.by_name(name)
            if topic is not None:
                wanted.add(topic.topic_id)
                counts[topic.topic_id] = topic.partition_count
        specs[member_id] = MemberSpec(
            subscribed=frozenset(wanted),
            assigned=group.target_of(member_id, member.instance_id if member is updated else None),
            instance_id=member.instance_id,
            rack_id=member.rack_id,
        )
    return GroupSpec(members=specs, partition_counts=counts)


def next_target(group: ConsumerGroup, updated: Member, assignor: str, topics: Topics) -> Assignment:
    spec = group_spec(group, updated, topics)
    assignment = ASSIGNORS[assignor](spec)
    check_assignment(spec, assignment)
    return assignment


def target_records(
    group: ConsumerGroup, assignment: Assignment, epoch: int, now_ms: int
) -> list[ConsumerRecord]:
    """What differs from the target that is written down, and for which epoch it is."""
    records: list[ConsumerRecord] = [
        target_record(group.group_id, member_id, assignment[member_id])
        for member_id in sorted(assignment)
        if assignment[member_id] != group.target.get(member_id)
    ]
    records.append(
        TargetEpochReached(
            group_id=group.group_id, assignment_epoch=epoch, assignment_timestamp=now_ms
        )
    )
    return records


def target_record(group_id: str, member_id: str, partitions: Partitions) -> TargetAssigned:
    return TargetAssigned(
        group_id=group_id,
        member_id=member_id,
        partitions=tuple(
            (topic_id, tuple(sorted(partitions[topic_id]))) for topic_id in sorted(partitions)
        ),
    )
