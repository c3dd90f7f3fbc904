"""One command's change to one consumer group, gathered as records, steps and effects.

INVARIANT  a turn reads the group as it is; what it decides stands in its records alone.
PREVENTS   a heartbeat that failed to be written having moved partitions all the same.
PROVED BY  tests/txn/test_consumer_machine.py::test_deciding_twice_gives_the_same_decision_and_changes_nothing

A heartbeat, step by step (KIP-848; Kafka's GroupMetadataManager.consumerGroupHeartbeat):

    1. the member is found or made; what it said now is put over what it said before
    2. new wishes, or new metadata of the topics, raise the group epoch
    3. a group epoch above that of the target asks the assignor, unless it was asked a moment ago
    4. the member takes a step towards the target and is told what it owns
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from uuid import UUID

from ..runtime.decision import CancelTimer, Decision, Effect, LogRecord, SetTimer, TimerKey
from .assignors.spec import Partitions
from .consumer_config import ConsumerConfig, GroupTimes
from .consumer_group import ConsumerGroup
from .consumer_member import Member, MemberState
from .consumer_reconcile import Holding, Reconciliation, reconcile
from .consumer_records import ConsumerRecord, Forgotten, GroupEpochBumped, Kind
from .consumer_scan import Scan
from .consumer_topics import TopicHashes, Topics
from .target import next_target, preferred_assignor, target_record, target_records


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-session", group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-rebalance", group_id, member_id)


def join_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-join", group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-sync", group_id, member_id)


def regex_timer(group_id: str) -> TimerKey:
    return ("consumer-regex", group_id)


MEMBER_TIMERS: Final = (session_timer, rebalance_timer, join_timer, sync_timer)


@dataclass(frozen=True, slots=True)
class MetadataChecked:
    """A step: the group's hash is that of the topics as they are now."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ScanMoved:
    """A step: how far the lookup of the group's expressions has come; None when there is none."""

    group_id: str
    scan: Scan | None


@dataclass(frozen=True, slots=True)
class JoinAwaited:
    """A step: a classic member was told to join again, or it has."""

    group_id: str
    member_id: str
    awaited: bool


@dataclass(slots=True)
class Soft:
    """What is remembered of a group without being written down."""

    metadata_checked: bool = False
    scan: Scan | None = None
    joining: set[str] = field(default_factory=set)  # classic members that were told to join again


class Downgrade(Protocol):
    """What makes a classic group of one whose last members of the new protocol go (`consumer_migration.py`)."""

    def by_leaving(
        self, group: ConsumerGroup, leaving: Sequence[Member], now_ms: int
    ) -> Decision | None:
        """The group without `leaving`, as a classic one; None when it may not or need not become one."""

    def may_replace(self, group: ConsumerGroup, replaced: Member) -> bool:
        """Whether the group becomes classic when this static member comes back as a classic one."""

    def by_replacement(
        self,
        group: ConsumerGroup,
        replaced: Member,
        joining: Member,
        now_ms: int,
        *,
        rebalance: bool,
    ) -> Decision: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a decision may look at besides the group."""

    config: ConsumerConfig
    times: GroupTimes
    topics: Topics
    hashes: TopicHashes
    new_topics_version: int  # of the metadata that last had a new topic
    now_ms: int
    downgrade: Downgrade | None = None


class Turn:
    def __init__(self, group: ConsumerGroup, soft: Soft, world: World) -> None:
        self.group = group
        self.soft = soft
        self.world = world
        self.records: list[LogRecord] = []
        self.steps: list[object] = []
        self.effects: list[Effect] = []

    def decision(self, reply: object = None) -> Decision:
        return Decision(
            reply=reply,
            records=tuple(self.records),
            steps=tuple(self.steps),
            effects=tuple(self.effects),
        )

    # ---- timers -------------------------------------------------------------------------------

    def keep_session(self, member_id: str, timeout_ms: int | None = None) -> None:
        timeout_ms = self.world.times.session_timeout_ms if timeout_ms is None else timeout_ms
        key = session_timer(self.group.group_id, member_id)
        self.effects.append(SetTimer(key, timeout_ms, heard=True))

    def cancel_timers(self, member_id: str) -> None:
        group_id = self.group.group_id
        self.effects += [CancelTimer(timer(group_id, member_id)) for timer in MEMBER_TIMERS]

    # ---- wishes and epochs --------------------------------------------------------------------

    def note_subscription(self, before: Member, after: Member) -> bool:
        """Write down what the member asks for; whether the topics it names are others than before."""
        if after == before:
            return False
        self.records.append(after.subscribed_record(self.group.group_id))
        return after.subscribed_topic_names != before.subscribed_topic_names

    def bump_if_needed(self, before: Member, after: Member, *, bump: bool) -> int:
        """The group epoch, raised if wishes changed or topics did since the last look."""
        group = self.group
        if not bump and self.soft.metadata_checked:
            return group.epoch
        names = group.subscribed_names(without=_known(group, before), with_=after)
        number = self.world.hashes.of(names)
        self.steps.append(MetadataChecked(group.group_id))
        epoch = group.epoch
        if bump or number != group.metadata_hash:
            epoch += 1
            self.records.append(
                GroupEpochBumped(group_id=group.group_id, epoch=epoch, metadata_hash=number)
            )
        if group.has_legacy_topics:
            self.records.append(Forgotten(kind=Kind.PARTITION_METADATA, group_id=group.group_id))
        return epoch

    # ---- target -------------------------------------------------------------------------------

    def target_for(self, before: Member, after: Member, epoch: int) -> tuple[int, Partitions]:
        """The epoch of the target and the member's part in it, computed anew when it is time."""
        group = self.group
        if not self.is_target_due(epoch):
            return group.assignment_epoch, group.target_of(after.member_id, after.instance_id)
        allowed = self.world.config.group_consumer_assignors
        assignor = preferred_assignor(group, allowed, before, after)
        assignment = next_target(group, after, assignor, self.world.topics)
        self.records += target_records(group, assignment, epoch, self.world.now_ms)
        return epoch, assignment[after.member_id]

    def is_target_due(self, epoch: int) -> bool:
        """Whether the assignor is to be asked, by whoever comes first."""
        return self.group.assignment_epoch < epoch and self._may_assign()

    def _may_assign(self) -> bool:
        """Not sooner than an interval after the last time, so that many joins make one assignment (KIP-1263).

        A last time that is yet to come was written by a clock that has been set back, or by another node's: waiting
        for it would leave partitions without a reader for as long as the clocks are apart.
        """
        last_ms = self.group.assignment_timestamp
        interval_ms = self.world.times.assignment_interval_ms
        is_soon = last_ms <= self.world.now_ms < last_ms + interval_ms
        return last_ms == 0 or not is_soon

    # ---- the member's own assignment ----------------------------------------------------------

    def step(
        self,
        member: Member,
        target_epoch: int,
        target: Partitions,
        holding: Holding,
        *,
        subscription_changed: bool,
    ) -> Member:
        """Take the member one step further, and write it down. Raises MustRejoin."""
        if not subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        subscription = self.group.subscription(member)
        topics = self.world.topics

        def is_subscribed(topic_id: UUID) -> bool:
            topic = topics.by_id(topic_id)
            return topic is not None and topic.name in subscription

        facts = Reconciliation(
            target_epoch=target_epoch,
            target=target,
            holding=holding,
            subscription_changed=subscription_changed,
            is_subscribed=is_subscribed,
            is_owned=self.group.is_owned,
        )
        after = reconcile(member, facts)
        if after == member:
            return member
        group_id = self.group.group_id
        self.records.append(after.current_record(group_id))
        if after.classic is None:
            timer = rebalance_timer(group_id, after.member_id)
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self.effects.append(SetTimer(timer, after.rebalance_timeout_ms))
            else:
                self.effects.append(CancelTimer(timer))
        return after

    # ---- members that go or change places -----------------------------------------------------

    def replace_static(self, old: Member, member_id: str) -> Member:
        """A static member is back under a new id: it takes over what it had, and joins from the start."""
        new = replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        group_id = self.group.group_id
        self.cancel_timers(old.member_id)
        self.records += self._removal(old.member_id)
        self.records.append(new.subscribed_record(group_id))
        self.records.append(target_record(group_id, member_id, self.group.target_of(old.member_id)))
        self.records.append(new.current_record(group_id))
        return new

    def fence(self, members: Sequence[Member], reply: object = None) -> Decision:
        """Take members out of the group; what they owned is free at once."""
        group, world = self.group, self.world
        if world.downgrade is not None:
            downgraded = world.downgrade.by_leaving(group, members, world.now_ms)
            if downgraded is not None:
                return replace(downgraded, reply=reply)
        for member in members:
            self.records += self._removal(member.member_id)
        gone = [member.regex for member in members if member.regex is not None]
        for regex in sorted(set(gone)):
            if group.regexes[regex] == gone.count(regex):
                self.forget_regex(regex)
        names = group.subscribed_names(without=members)
        self.records.append(
            GroupEpochBumped(
                group_id=group.group_id,
                epoch=group.epoch + 1,
                metadata_hash=world.hashes.of(names),
            )
        )
        for member in members:
            self.cancel_timers(member.member_id)
        return self.decision(reply)

    def downgrade_by_replacement(
        self, replaced: Member, joining: Member, epoch: int, holding: Holding, *, changed: bool
    ) -> tuple[Member, Decision] | None:
        """The last member of the new protocol is back as a classic one: the group becomes classic."""
        group, downgrade = self.group, self.world.downgrade
        if downgrade is None or not downgrade.may_replace(group, replaced):
            return None
        # Kafka looks at the epochs alone. A member that has not given up what its target takes away would go on
        # reading it while the new classic generation gives it to another: then everybody has to join again.
        others = [member for member in group.members.values() if member is not replaced]
        settled = all(member.is_reconciled_to(group.assignment_epoch) for member in others)
        rebalance = group.assignment_epoch < epoch or not settled
        if not rebalance:
            target = group.target_of(joining.member_id, joining.instance_id)
            joining = self.step(
                joining, group.assignment_epoch, target, holding, subscription_changed=changed
            )
        rest = downgrade.by_replacement(
            group, replaced, joining, self.world.now_ms, rebalance=rebalance
        )
        return joining, Decision(
            records=(*self.records, *rest.records),
            steps=(*self.steps, *rest.steps),
            effects=(*self.effects, *rest.effects),
            whole=rest.whole,
        )

    def _removal(self, member_id: str) -> list[ConsumerRecord]:
        kinds = (
            Kind.CURRENT_MEMBER_ASSIGNMENT,
            Kind.TARGET_ASSIGNMENT_MEMBER,
            Kind.MEMBER_METADATA,
        )
        group_id = self.group.group_id
        return [Forgotten(kind=kind, group_id=group_id, item=member_id) for kind in kinds]

    def forget_regex(self, regex: str) -> None:
        kind = Kind.REGULAR_EXPRESSION
        self.records.append(Forgotten(kind=kind, group_id=self.group.group_id, item=regex))

    def named(self, partitions: Mapping[UUID, Iterable[int]]) -> dict[str, tuple[int, ...]]:
        """Partitions by the names of their topics, as the classic protocol has them."""
        found: dict[str, tuple[int, ...]] = {}
        for topic_id in sorted(partitions):
            topic = self.world.topics.by_id(topic_id)
            if topic is not None:
                found[topic.name] = tuple(sorted(partitions[topic_id]))
        return found


def _known(group: ConsumerGroup, member: Member) -> tuple[Member, ...]:
    """The member as the group counts it; a new one is not counted yet, a replaced one under its old id."""
    if member.member_id in group.members:
        return (group.members[member.member_id],)
    old = group.static_member(member.instance_id)
    return () if old is None else (old,)
