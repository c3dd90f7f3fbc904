"""What an assignor is told, and what it answers: who wants which topics, who is to have which partitions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]  # of one member; a topic without partitions is left out
Assignment = dict[str, Partitions]  # by member; every member of the group is there


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """One member. `subscribed` are topics that exist; `assigned` is what the last answer gave it."""

    subscribed: frozenset[UUID]
    assigned: Partitions
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]  # of every topic that some member subscribes to

    def is_homogeneous(self) -> bool:
        """Whether all members want the same topics, which makes balancing simple."""
        wanted = iter(self.members.values())
        first = next(wanted, None)
        return first is None or all(member.subscribed == first.subscribed for member in wanted)


Assignor = Callable[[GroupSpec], Assignment]


def check_assignment(spec: GroupSpec, assignment: Assignment) -> None:
    """What no assignor may get wrong (paired with the check before each target is written)."""
    assert assignment.keys() == spec.members.keys(), "an assignor forgot or invented a member"
    given: dict[UUID, int] = {}
    owned: set[tuple[UUID, int]] = set()
    for member_id in sorted(assignment):
        for topic_id, partitions in assignment[member_id].items():
            assert topic_id in spec.members[member_id].subscribed, "a topic nobody asked for"
            for partition in partitions:
                assert (topic_id, partition) not in owned, f"{topic_id}-{partition} given twice"
                owned.add((topic_id, partition))
            given[topic_id] = given.get(topic_id, 0) + len(partitions)
    for topic_id, count in spec.partition_counts.items():
        wanted = any(topic_id in member.subscribed for member in spec.members.values())
        assert given.get(topic_id, 0) == (count if wanted else 0), f"{topic_id} is not all given"
