"""A classic group: its phase, its members and what they can agree on.

INVARIANT  a phase changes only along MAY_BECOME; a generation has one leader, who is one of its members.
PREVENTS   a group that is stable without an assignment, or hands out two for one generation.
PROVED BY  tests/txn/test_classic_group.py::test_only_what_the_table_allows_can_happen_to_a_phase

Members never change, they are replaced; a group is changed only on a copy (`classic_turn.py`), so that
deciding leaves the original as it was. Phases are Kafka's (ClassicGroupState), as is who may follow whom.
"""

import enum
from dataclasses import dataclass, replace
from typing import Final

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.moments import Began, Moment
from .records import NO_TIMESTAMP, GroupMetadata, MemberMetadata
from .subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics

GENERATION_MAX: Final = 2**31 - 1
NOT_READ: Final = frozenset({"\0 not read"})  # compared by identity


class Phase(enum.Enum):
    """Spelled as DescribeGroups shows it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


P = Phase
MAY_BECOME: Final[dict[Phase, frozenset[Phase]]] = {
    # nobody is a member; offsets may be there   -> someone joins, or the group is forgotten
    P.EMPTY: frozenset({P.PREPARING_REBALANCE, P.DEAD}),
    # waits for all members to join               -> they have, or all have left
    P.PREPARING_REBALANCE: frozenset({P.COMPLETING_REBALANCE, P.EMPTY, P.DEAD}),
    # waits for the leader to say who gets what   -> it has, or someone came or went
    P.COMPLETING_REBALANCE: frozenset({P.STABLE, P.PREPARING_REBALANCE, P.DEAD}),
    # everyone has an assignment                  -> someone came, went or changed
    P.STABLE: frozenset({P.PREPARING_REBALANCE, P.DEAD}),
    # forgotten: a name that answers to nothing
    P.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_ticket: int | None = None  # a JoinGroup of this member is parked
    sync_ticket: int | None = None  # a SyncGroup of this member is parked
    is_new: bool = False  # it has never had an answer to JoinGroup, so it does not know its own id

    def metadata(self, protocol_name: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"{self.member_id} does not support {protocol_name}")

    @property
    def is_waiting(self) -> bool:
        """Whoever waits for us can't send heartbeats, and is not expected to."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


class ClassicGroup:
    __slots__ = (
        "awaiting_joins",
        "generation_id",
        "group_id",
        "initial_wait",
        "leader_id",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "phase",
        "previous_phase",
        "protocol_name",
        "protocol_type",
        "since",
        "since_ms",
        "static_members",
        "supported_protocols",
        "topics_in_use",
    )

    def __init__(self, group_id: str, since_ms: int = NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.phase = P.EMPTY
        self.previous_phase = P.DEAD
        self.since_ms = since_ms  # Kafka's currentStateTimestamp
        self.since: Moment | None = None  # likewise; None until it is known to who decides
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        # Ids that were handed out and have not joined yet, the oldest first.
        self.pending_joins: dict[str, None] = {}
        self.pending_syncs: set[str] = set()  # members of this generation that have not synced yet
        self.awaiting_joins = 0  # members with a parked JoinGroup
        self.supported_protocols: dict[str, int] = {}  # protocol -> how many members support it
        # What `subscribed` found out about this generation; NOT_READ until somebody asks.
        self.topics_in_use: frozenset[str] | None = NOT_READ
        # While a new group gathers: the delay under way and what is left of the longest one.
        self.initial_wait: tuple[int, int] | None = None
        self.new_member_added = False

    def copy(self) -> "ClassicGroup":
        other = ClassicGroup.__new__(ClassicGroup)
        for name in ClassicGroup.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, (dict, set)) else value)
        return other

    @classmethod
    def from_record(cls, record: GroupMetadata) -> "ClassicGroup":
        """As the log knows it: nobody waits, and each member supports what was agreed on."""
        group = cls(record.group_id, record.current_state_timestamp)
        group.protocol_type = record.protocol_type or None
        group.protocol_name = record.protocol
        group.generation_id = record.generation
        group.leader_id = record.leader
        if record.members:
            # Without a leader nobody has assigned: they are yet to join again (`consumer_migration.py`).
            group.phase = P.PREPARING_REBALANCE if record.leader is None else P.STABLE
        for row in record.members:
            member = Member(
                member_id=row.member_id,
                group_instance_id=row.group_instance_id,
                client_id=row.client_id,
                client_host=row.client_host,
                rebalance_timeout_ms=row.rebalance_timeout_ms,
                session_timeout_ms=row.session_timeout_ms,
                protocols=((record.protocol or "", row.subscription),),
                assignment=row.assignment,
            )
            group.put(member)
        return group

    def record(self) -> GroupMetadata:
        """What the log must know to rebuild the group with its members as they are."""
        return GroupMetadata(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.since_ms,
            members=tuple(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name or ""),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ),
        )

    # -- what holds ------------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_simple(self) -> bool:
        """It has only ever stored offsets: nobody has joined or is about to."""
        return self.protocol_type is None and self.phase is P.EMPTY and not self.pending_joins

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_joins and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        """A consumer group whose subscriptions can't be read may be subscribed to anything."""
        subscribed = self.subscribed
        return self.uses_consumer_protocol if subscribed is None else topic in subscribed

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether a member with these could join without leaving the group nothing in common."""
        if self.phase is P.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self.supported_protocols.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def refuse_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Why this is not a member in good standing; `none` if it is."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.unknown_member_id
            if current != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def refuse_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, in_txn: bool
    ) -> ErrorCode:
        """Why this member, or nobody in particular, may not store offsets now; `none` if it may."""
        if generation_id < 0 and self.phase is P.EMPTY:
            return ErrorCode.none  # an admin client, or a consumer that assigns itself
        if generation_id >= 0 or member_id or group_instance_id is not None:
            refusal = self.refuse_member(member_id, group_instance_id)
            if refusal is not ErrorCode.none:
                return refusal
            if generation_id != self.generation_id:
                return ErrorCode.illegal_generation
        elif not in_txn:
            return ErrorCode.unknown_member_id
        # The member has the new generation's id but not yet its assignment. TxnOffsetCommit never
        # had this check: its old versions name no member.
        if not in_txn and self.phase is P.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def refuse_older(self, began: Began) -> ErrorCode:
        """Whether offsets of a transaction that began then may be from a generation before this one.

        Old clients don't say who they are in the group, so that after a rebalance two of them store positions of one
        partition (aiokafka#844). The one whose transaction is older than the generation may have lost it.

        Wall clocks decide only what began under a coordinator before this one, as nothing else was written down: where
        one is wrong, the one transaction that is open while a coordinator moves is taken for older or newer than it is.
        """
        if self.phase not in (P.COMPLETING_REBALANCE, P.STABLE):
            return ErrorCode.none
        since = self.since
        assert since is not None, f"{self.group_id}: nobody noted when it became {self.phase}"
        if began.at.from_s >= since.to_s:
            return ErrorCode.none
        is_older = began.at.to_s < since.from_s
        if not is_older and since.has_beginning and began.at.has_beginning:
            # The answer took too long to tell: once more.
            return ErrorCode.coordinator_not_available
        if is_older or began.by_wall_ms < self.since_ms:
            # They know no other word that makes them begin anew.
            return ErrorCode.invalid_producer_epoch
        return ErrorCode.none

    def selected_protocol(self) -> str:
        """What every member supports and most want; on a tie, what the first member puts first."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.supported_protocols[name] == len(self.members):
                    votes[name] = votes.get(name, 0) + 1
                    break
            else:
                raise AssertionError(f"{member.member_id} supports nothing that all do")
        return max(votes, key=lambda name: votes[name])

    @property
    def subscribed(self) -> frozenset[str] | None:
        """The topics that the members of this generation read; None if that can't be told."""
        if self.topics_in_use is NOT_READ:
            self.topics_in_use = self._find_subscribed()
        return self.topics_in_use

    def _find_subscribed(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        found: set[str] = set()
        for member in self.members.values():
            # In the middle of a rebalance a member may have given up what was agreed on before.
            metadata = dict(member.protocols).get(self.protocol_name)
            topics = None if metadata is None else subscribed_topics(metadata)
            if topics is None:
                return None
            found.update(topics)
        return frozenset(found)

    # -- changes, on a copy ----------------------------------------------------------------------

    def become(self, phase: Phase, now_ms: int) -> None:
        assert phase in MAY_BECOME[self.phase], f"{self.group_id}: {self.phase} -> {phase}"
        self.previous_phase, self.phase = self.phase, phase
        self.since_ms, self.since = now_ms, None

    def put(self, member: Member) -> None:
        """Add a member, or replace the one with its id."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
        self.members[member.member_id] = member
        self._count(member, +1)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Take out a member or one that was about to be; the next in line leads if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)

    def replace_static(self, old: Member, new: Member) -> None:
        """The same group instance under a new member id. It takes the old one's place, also as leader."""
        assert old.group_instance_id == new.group_instance_id is not None
        self._count(old, -1)
        self.members = {
            (new.member_id if id_ == old.member_id else id_): (new if id_ == old.member_id else m)
            for id_, m in self.members.items()
        }
        self._count(new, +1)
        self.static_members[new.group_instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_syncs:
            self.pending_syncs.remove(old.member_id)
            self.pending_syncs.add(new.member_id)

    def change(self, member: Member, **changes: object) -> Member:
        changed = replace(member, **changes)  # type: ignore[arg-type]
        self.put(changed)
        return changed

    def _count(self, member: Member, by: int) -> None:
        if member.join_ticket is not None:
            self.awaiting_joins += by
        for name, _ in member.protocols:
            count = self.supported_protocols.get(name, 0) + by
            if count:
                self.supported_protocols[name] = count
            else:
                del self.supported_protocols[name]
