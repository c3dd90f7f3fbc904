"""Groups with members that change their protocol, one member after the other (KIP-848, "Online Migration").

INVARIANT  a group changes its kind in one batch of records: the tombstones of the one, the whole of the other.
PREVENTS   a coordinator that takes over finding half a group of each kind, or none.
PROVED BY  tests/txn/test_consumer_migration.py::test_a_group_that_changed_its_kind_is_the_same_after_a_replay

Up: the first member of the new protocol that joins a classic group makes a consumer group of it; those who are
there stay members and go on in their own words (`consumer_classic.py`). Down: when the last member of the new
protocol goes, or comes back as a classic one, what is left becomes a classic group again and rebalances.
`group.consumer.migration.policy` says which of the two may happen; Kafka 4's default is both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.codec import RecordRefused
from ..runtime.decision import Answer, CancelTimer, Decision, Effect, LogRecord, SetTimer
from ..runtime.encoding import encode
from . import classic_turn
from .classic_group import ClassicGroup, Phase
from .classic_group import Member as ClassicGroupMember
from .classic_turn import join_fields, sync_fields
from .commands import ConsumerGroupHeartbeat, Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from .config import GroupConfig
from .consumer_classic import beat, join, leave, sync
from .consumer_config import ConsumerConfig
from .consumer_embedded import (
    read_assignment,
    read_subscription,
    version_to_write,
    write_assignment,
)
from .consumer_group import ConsumerGroup
from .consumer_heartbeat import heartbeat
from .consumer_machine import ConsumerMachine
from .consumer_member import Member, Owned
from .consumer_records import (
    ClassicMember,
    ConsumerRecord,
    GroupEpochBumped,
    TargetEpochReached,
)
from .consumer_requests import Refusal, refuse, refused, said
from .consumer_topics import Topics
from .consumer_turn import MEMBER_TIMERS, session_timer
from .groups_machine import GroupsMachine
from .records import GroupForgotten
from .subscription import CONSUMER_PROTOCOL_TYPE
from .target import target_record

E: Final = ErrorCode
_CUSTOM: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
    "default assignor before re-attempting the upgrade."
)


class CannotUpgrade(ValueError):
    """Why a classic group can't become a consumer group, in Kafka's words."""


class MigratingGroups(GroupsMachine):
    """Groups of both kinds, whose members may be of both."""

    consumer: ConsumerMachine

    def __init__(
        self, config: GroupConfig, consumer: ConsumerMachine, elapsed: Callable[[], float]
    ) -> None:
        super().__init__(config, consumer, elapsed)
        consumer.downgrade = ToClassic(config, consumer.config, consumer.topics)

    def decide(self, command: Any, now_ms: int) -> Decision:
        match command:
            case ConsumerGroupHeartbeat():
                return self._heartbeat_of_the_new_protocol(command, now_ms)
            case JoinGroup():
                return self._join_of_either(command, now_ms)
            case SyncGroup() | Heartbeat() | LeaveGroup():
                group = self.consumer.groups.get(command.group_id)
                if group is None:
                    return self.classic.decide(command, now_ms)
                turn = self.consumer.turn(group, now_ms)
                if isinstance(command, SyncGroup):
                    return sync(turn, command)
                return (
                    beat(turn, command) if isinstance(command, Heartbeat) else leave(turn, command)
                )
            case _:
                return super().decide(command, now_ms)

    def _heartbeat_of_the_new_protocol(
        self, command: ConsumerGroupHeartbeat, now_ms: int
    ) -> Decision:
        classic = self.classic.groups.get(command.group_id)
        if classic is None or command.body.member_epoch != 0 or classic.phase is Phase.EMPTY:
            return super()._consumer_heartbeat(command, now_ms)
        asked = said(command)
        impossible = refuse(asked, self.consumer.config.group_consumer_assignors)
        if impossible is not None:
            return refused(impossible)
        try:
            records = upgrade_records(classic, self.consumer)
        except CannotUpgrade as why:
            message = f"Cannot upgrade classic group {command.group_id} to consumer group because "
            return refused(Refusal(E.group_id_not_found, message + str(why)))
        group = ConsumerGroup(group_id=command.group_id)
        for record in records:
            group.apply(record)
        rest = heartbeat(self.consumer.turn(group, now_ms), asked)
        if rest.reply["error_code"] is not E.none:
            return rest
        return replace(
            rest,
            records=(GroupForgotten(group_id=command.group_id), *records, *rest.records),
            effects=(*_leave_classic(classic, group), *rest.effects),
            whole=True,
        )

    def _join_of_either(self, command: JoinGroup, now_ms: int) -> Decision:
        group = self.consumer.groups.get(command.group_id)
        if group is None or not group.members:
            return super()._join(command, now_ms)
        return join(self.consumer.turn(group, now_ms), command)


# ---- up -------------------------------------------------------------------------------------------


def upgrade_records(classic: ClassicGroup, consumer: ConsumerMachine) -> list[ConsumerRecord]:
    """The classic group as a consumer group: its generation is the epoch of everything. Raises CannotUpgrade."""
    config = consumer.config
    if not config.group_consumer_migration_policy.may_upgrade:
        raise CannotUpgrade("online upgrade is disabled.")
    if not classic.uses_consumer_protocol:
        raise CannotUpgrade("the group does not use the consumer embedded protocol.")
    if len(classic.members) > config.group_consumer_max_size:
        raise CannotUpgrade("the group size exceeds the consumer group maximum size.")
    try:
        members = [
            _upgraded(member, classic, consumer.topics) for member in classic.members.values()
        ]
        members = _with_claims(members, classic, consumer.topics)
    except RecordRefused:
        raise CannotUpgrade("the embedded consumer protocol is malformed.") from None
    _check_owners(members)
    names = sorted({name for member in members for name in member.subscribed_topic_names})
    group_id, epoch = classic.group_id, classic.generation_id
    number = consumer.hashes.of(names)
    targets = [
        target_record(
            group_id, m.member_id, {topic: frozenset(held) for topic, held in m.assigned.items()}
        )
        for m in members
    ]
    return [
        *(member.subscribed_record(group_id) for member in members),
        GroupEpochBumped(group_id=group_id, epoch=epoch, metadata_hash=number),
        *targets,
        TargetEpochReached(group_id=group_id, assignment_epoch=epoch),
        *(member.current_record(group_id) for member in members),
    ]


def _upgraded(member: ClassicGroupMember, classic: ClassicGroup, topics: Topics) -> Member:
    # In its very first rebalance a group has not agreed on a protocol; the first is what it will be told.
    protocol = classic.protocol_name or classic.selected_protocol()
    # All that it offers: it is told in the words of the first from now on, and the group may come to another.
    said = {name: read_subscription(metadata) for name, metadata in member.protocols}
    subscription = said.get(protocol) or said[member.protocols[0][0]]
    return Member(
        member_id=member.member_id,
        member_epoch=classic.generation_id,
        previous_member_epoch=classic.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assigned=_owned(member.assignment, topics, classic.generation_id),
        classic=ClassicMember(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
    )


def _owned(assignment: bytes, topics: Topics, epoch: int) -> Owned:
    if not assignment:
        return {}
    given = read_assignment(assignment)
    if given.user_data:
        raise CannotUpgrade(_CUSTOM)
    owned = {}
    for name, partitions in given.partitions.items():
        topic = topics.by_name(name)
        if topic is not None and partitions:
            owned[topic.topic_id] = dict.fromkeys(partitions, epoch)
    return owned


def _with_claims(members: Sequence[Member], classic: ClassicGroup, topics: Topics) -> list[Member]:
    """In the middle of a rebalance a cooperative member still holds what it said it owned when it joined, while
    its assignment may be forgotten already. It keeps what no one else was given."""
    taken = {
        (topic, p) for member in members for topic, held in member.assigned.items() for p in held
    }
    found = []
    for member in members:
        claims: dict[UUID, dict[int, int]] = {}
        if not member.assigned and classic.phase is not Phase.STABLE and member.classic is not None:
            subscription = read_subscription(member.classic.protocols[0][1])
            for name, partitions in sorted(subscription.owned.items()):
                topic = topics.by_name(name)
                if topic is None:
                    continue
                free = [p for p in partitions if (topic.topic_id, p) not in taken]
                taken.update((topic.topic_id, p) for p in free)
                if free:
                    claims[topic.topic_id] = dict.fromkeys(free, classic.generation_id)
        found.append(replace(member, assigned=claims) if claims else member)
    return found


def _check_owners(members: Sequence[Member]) -> None:
    """A client-side assignor may give a partition to two members. A consumer group can't hold that."""
    owners: set[tuple[UUID, int]] = set()
    for member in members:
        for topic_id, partitions in member.assigned.items():
            for partition in partitions:
                if (topic_id, partition) in owners:
                    raise CannotUpgrade(_CUSTOM)
                owners.add((topic_id, partition))


def _leave_classic(classic: ClassicGroup, group: ConsumerGroup) -> list[Effect]:
    """Who waits is told to join again; sessions go on under the other machine's name."""
    group_id = classic.group_id
    effects: list[Effect] = [
        CancelTimer(classic_turn.join_timer(group_id)),
        CancelTimer(classic_turn.sync_timer(group_id)),
    ]
    effects += [
        CancelTimer(classic_turn.session_timer(group_id, pending))
        for pending in sorted(classic.pending_joins)
    ]
    for member in classic.members.values():
        if member.join_ticket is not None:
            fields = join_fields(E.rebalance_in_progress, member.member_id)
            effects.append(Answer(member.join_ticket, fields))
        if member.sync_ticket is not None:
            effects.append(Answer(member.sync_ticket, sync_fields(E.rebalance_in_progress)))
        effects.append(CancelTimer(classic_turn.session_timer(group_id, member.member_id)))
        key = session_timer(group_id, member.member_id)
        effects.append(SetTimer(key, member.session_timeout_ms))
    return effects


# ---- down -----------------------------------------------------------------------------------------


class ToClassic:
    """Makes classic groups of consumer groups that have only classic members left (consumer_turn.Downgrade)."""

    def __init__(self, config: GroupConfig, consumer: ConsumerConfig, topics: Topics) -> None:
        self.config = config
        self.consumer = consumer
        self.topics = topics

    def by_leaving(
        self, group: ConsumerGroup, leaving: Sequence[Member], now_ms: int
    ) -> Decision | None:
        gone = {member.member_id for member in leaving}
        stay = [group.members[id_] for id_ in sorted(group.members) if id_ not in gone]
        if not stay or not self._may(stay):
            return None
        decision = self._downgrade(group, stay, {}, now_ms, rebalance=True)
        # A classic group is one record. Without room in it they stay what they are: who left has to be taken out.
        batches = encode(decision.records, now_ms, None)
        return None if isinstance(batches, ErrorCode) or len(batches) > 1 else decision

    def may_replace(self, group: ConsumerGroup, replaced: Member) -> bool:
        others = [m for m in group.members.values() if m is not replaced]
        is_last = replaced.classic is None
        return is_last and self._may(others, and_one_more=True)

    def by_replacement(
        self,
        group: ConsumerGroup,
        replaced: Member,
        joining: Member,
        now_ms: int,
        *,
        rebalance: bool,
    ) -> Decision:
        others = [group.members[id_] for id_ in sorted(group.members) if id_ != replaced.member_id]
        members = [*others, joining]  # it is the last in line to lead
        renamed = {replaced.member_id: joining.member_id}
        return self._downgrade(group, members, renamed, now_ms, rebalance=rebalance)

    def _may(self, members: Sequence[Member], *, and_one_more: bool = False) -> bool:
        return (
            all(member.classic is not None for member in members)
            and self.consumer.group_consumer_migration_policy.may_downgrade
            and len(members) + and_one_more <= self.config.group_max_size
        )

    def _downgrade(
        self,
        group: ConsumerGroup,
        members: Sequence[Member],
        renamed: Mapping[str, str],
        now_ms: int,
        *,
        rebalance: bool,
    ) -> Decision:
        classic = self._classic(group, members, now_ms)
        record = classic.record()
        if rebalance:
            # 1. the last one goes, and this is written   2. the coordinator moves, before all have joined again
            # 3. who stayed has this very generation. Stable, it would go on for ever without what the other had.
            record = replace(record, leader=None)
        records: list[LogRecord] = [*group.tombstones(renamed=renamed), record]
        effects: list[Effect] = [
            CancelTimer(timer(group.group_id, member_id))
            for member_id in sorted({*group.members, *renamed.values()})
            for timer in MEMBER_TIMERS
        ]
        turn = classic_turn.Turn(classic, self.config, now_ms)
        for member in turn.group.members.values():
            turn.keep_session(member)
        if rebalance:
            turn.prepare_rebalance()
        rest = turn.decision()
        return Decision(
            records=(*records, *rest.records),
            steps=rest.steps,
            effects=(*effects, *rest.effects),
            whole=True,
        )

    def _classic(
        self, group: ConsumerGroup, members: Sequence[Member], now_ms: int
    ) -> ClassicGroup:
        """The group as a generation of its own."""
        classic = ClassicGroup(group.group_id, now_ms)
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        classic.generation_id = group.epoch
        classic.phase = Phase.STABLE
        for joined in members:
            classic.put(_downgraded(joined))
        classic.protocol_name = classic.selected_protocol()
        for joined in members:
            member = classic.members[joined.member_id]
            version = version_to_write(member.metadata(classic.protocol_name))
            classic.change(member, assignment=write_assignment(self._held(joined), version))
        return classic

    def _held(self, member: Member) -> dict[str, tuple[int, ...]]:
        """What the member may hold is its assignment. Kafka takes its target: a member that has not given up
        what that takes away is then not known to hold it, and an upgrade right after gives it to another."""
        held: dict[str, tuple[int, ...]] = {}
        for part in (member.assigned, member.pending_revocation):
            for topic_id in sorted(part):
                topic = self.topics.by_id(topic_id)
                if topic is not None:
                    held[topic.name] = tuple(sorted((*held.get(topic.name, ()), *part[topic_id])))
        return held


def _downgraded(member: Member) -> ClassicGroupMember:
    assert member.classic is not None, "only classic members make a classic group"
    return ClassicGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
    )
