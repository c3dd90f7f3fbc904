"""A consumer group (KIP-848): its members, what each is to own, and what each owns.

INVARIANT  a group is built from its records alone; two that saw the same records are equal.
PREVENTS   a coordinator that takes over handing a partition to a second owner, or forgetting who has it.
PROVED BY  tests/txn/test_consumer_simulation.py::test_a_group_replayed_from_its_records_is_the_same_group

Three things move one after the other: the group epoch, when wishes or topics change; the target assignment,
computed for one group epoch; and each member's own assignment, on its way to the target (KIP-848).
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from .assignors.spec import Partitions
from .consumer_member import LEAVE_EPOCH, NOTHING_OWNED, Member, MemberState, Owned
from .consumer_records import (
    ConsumerRecord,
    CurrentAssigned,
    Forgotten,
    GroupEpochBumped,
    Kind,
    LegacyTopicsNoted,
    MemberSubscribed,
    RegexResolved,
    TargetAssigned,
    TargetEpochReached,
)

# A group that has no records yet stands here, so that its first member gets an epoch of its own (Kafka 4.3).
FIRST_EPOCH: Final = 1
NO_TARGET: Final[Partitions] = {}


class GroupState(enum.Enum):
    """As ListGroups and ConsumerGroupDescribe spell it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the target is for an older epoch
    RECONCILING = "Reconciling"  # some member is not where the target wants it
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What an expression meant when it was last looked up."""

    topics: frozenset[str]
    version: int
    timestamp: int


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    resolved: dict[str, Resolved] = field(default_factory=dict)
    has_legacy_topics: bool = False
    # Derived from the members, kept because every heartbeat asks.
    static_members: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    owners: dict[tuple[UUID, int], str] = field(default_factory=dict)
    regexes: Counter[str] = field(default_factory=Counter)  # expression -> members with it
    names: Counter[str] = field(default_factory=Counter)  # topic -> members that name it

    # ---- what can be asked --------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        settled = all(m.is_reconciled_to(self.assignment_epoch) for m in self.members.values())
        return GroupState.STABLE if settled else GroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str, instance_id: str | None = None) -> Partitions:
        """A static member that comes back under a new id finds the target of the old one."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, member_id)
        return self.target.get(member_id, NO_TARGET)

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        return (topic_id, partition) in self.owners

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self.names or any(topic in found.topics for found in self.resolved.values()):
            return True
        # One that is yet to be looked up may mean any.
        return any(regex not in self.resolved for regex in self.regexes)

    def subscription(self, member: Member) -> frozenset[str]:
        """The topics a member names, and those that its expression was last found to mean."""
        found = self.resolved.get(member.regex) if member.regex is not None else None
        names = member.subscribed_topic_names
        return names if found is None else names | found.topics

    def subscribed_names(
        self,
        *,
        without: Iterable[Member] = (),
        with_: Member | None = None,
        resolved: Mapping[str, Resolved] | None = None,
    ) -> list[str]:
        """Every topic that the group reads, or would with these members changed or expressions resolved."""
        names = self.names.copy()
        regexes = self.regexes.copy()
        for member in without:
            names.subtract(member.subscribed_topic_names)
            regexes[member.regex or ""] -= 1
        if with_ is not None:
            names.update(with_.subscribed_topic_names)
            regexes[with_.regex or ""] += 1
        found = {name for name, count in names.items() if count > 0}
        for regex, resolution in {**self.resolved, **(resolved or {})}.items():
            if regexes[regex] > 0:
                found |= resolution.topics
        return sorted(found)

    def tombstones(self, *, renamed: Mapping[str, str] | None = None) -> list[ConsumerRecord]:
        """The records that make the group as if it had never been, in the order Kafka writes them.

        `renamed` names the members that records of the same decision have just put in place of others.
        """
        member_ids = [
            (renamed or {}).get(member_id, member_id) for member_id in sorted(self.members)
        ]
        records: list[ConsumerRecord] = []
        for kind in (Kind.CURRENT_MEMBER_ASSIGNMENT, Kind.TARGET_ASSIGNMENT_MEMBER):
            records += [self._tombstone(kind, member_id) for member_id in member_ids]
        records.append(self._tombstone(Kind.TARGET_ASSIGNMENT_METADATA))
        records += [self._tombstone(Kind.MEMBER_METADATA, member_id) for member_id in member_ids]
        records += [
            self._tombstone(Kind.REGULAR_EXPRESSION, regex) for regex in sorted(self.resolved)
        ]
        records.append(self._tombstone(Kind.PARTITION_METADATA))
        records.append(self._tombstone(Kind.GROUP_METADATA))
        return records

    def _tombstone(self, kind: Kind, item: str = "") -> Forgotten:
        return Forgotten(kind=kind, group_id=self.group_id, item=item)

    # ---- what changes it ----------------------------------------------------------------------

    def apply(self, record: ConsumerRecord) -> None:
        match record:
            case GroupEpochBumped():
                self.epoch, self.metadata_hash = record.epoch, record.metadata_hash
            case MemberSubscribed():
                self._put(self._member(record.member_id).with_subscription(record))
            case TargetAssigned():
                self.target[record.member_id] = {
                    topic_id: frozenset(partitions) for topic_id, partitions in record.partitions
                }
            case TargetEpochReached():
                self.assignment_epoch = record.assignment_epoch
                self.assignment_timestamp = record.assignment_timestamp
            case CurrentAssigned():
                self._put(self._member(record.member_id).with_current(record))
            case RegexResolved():
                self.resolved[record.regex] = Resolved(
                    topics=frozenset(record.topics),
                    version=record.version,
                    timestamp=record.timestamp,
                )
            case LegacyTopicsNoted():
                self.has_legacy_topics = True
            case Forgotten():
                self._forget(record)

    def _forget(self, record: Forgotten) -> None:
        match record.kind:
            case Kind.CURRENT_MEMBER_ASSIGNMENT:
                member = self.members.get(record.item)
                if member is not None:
                    gone = member.moved(LEAVE_EPOCH, MemberState.STABLE, NOTHING_OWNED)
                    self._put(gone)
            case Kind.TARGET_ASSIGNMENT_MEMBER:
                self.target.pop(record.item, None)
            case Kind.MEMBER_METADATA:
                self._remove(record.item)
            case Kind.TARGET_ASSIGNMENT_METADATA:
                self.assignment_epoch, self.assignment_timestamp = -1, 0
            case Kind.REGULAR_EXPRESSION:
                self.resolved.pop(record.item, None)
            case Kind.PARTITION_METADATA:
                self.has_legacy_topics = False
            case Kind.GROUP_METADATA:
                raise AssertionError("who holds the groups removes them")

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id=member_id)

    def _put(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._uncount(old)
        self.members[member.member_id] = member
        self.names.update(member.subscribed_topic_names)
        if member.regex is not None:
            self.regexes[member.regex] += 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for owned in (member.assigned, member.pending_revocation):
            self._own(member, owned)

    def _own(self, member: Member, owned: Owned) -> None:
        for topic_id, partitions in owned.items():
            for partition in partitions:
                other = self.members.get(self.owners.get((topic_id, partition), ""))
                # A replay that raced with the compaction of a tombstone may still show an owner that is
                # gone (KAFKA-19862): whoever has the higher epoch is the one that is left.
                assert other is None or other.member_epoch < member.member_epoch, (
                    f"{topic_id}-{partition} of {self.group_id} has two owners: "
                    f"{other.member_id} and {member.member_id}"
                )
                self.owners[topic_id, partition] = member.member_id

    def _uncount(self, member: Member) -> None:
        self.names.subtract(member.subscribed_topic_names)
        for name in member.subscribed_topic_names:
            if self.names[name] <= 0:
                del self.names[name]
        if member.regex is not None:
            self.regexes[member.regex] -= 1
            if self.regexes[member.regex] <= 0:
                del self.regexes[member.regex]
        if self.static_members.get(member.instance_id or "") == member.member_id:
            del self.static_members[member.instance_id or ""]
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._uncount(member)
