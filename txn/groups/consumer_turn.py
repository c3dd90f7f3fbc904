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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final
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


@dataclass(slots=True)
class Soft:
    """What is remembered of a group without being written down."""

    metadata_checked: bool = False
    scan: Scan | None = None
    joining: set[str] = field(default_factory=set)  # classic members that were told to join again


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a decision may look at besides the group."""

    config: ConsumerConfig
    times: GroupTimes
    topics: Topics
    hashes: TopicHashes
    new_topics_version: int  # of the metadata that last had a new topic
    now_ms: int


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
        self.effects.append(SetTimer(session_timer(self.group.group_id, member_id), timeout_ms))

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
        if group.assignment_epoch >= epoch or not self._may_assign():
            return group.assignment_epoch, group.target_of(after.member_id, after.instance_id)
        default = self.world.config.group_consumer_assignors[0]
        assignor = preferred_assignor(group, default, before, after)
        assignment = next_target(group, after, assignor, self.world.topics)
        self.records += target_records(group, assignment, epoch, self.world.now_ms)
        return epoch, assignment[after.member_id]

    def _may_assign(self) -> bool:
        """Not sooner than an interval after the last time, so that many joins make one assignment (KIP-1263)."""
        last_ms = self.group.assignment_timestamp
        interval_ms = self.world.times.assignment_interval_ms
        return last_ms == 0 or interval_ms == 0 or self.world.now_ms >= last_ms + interval_ms

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

    def fence(self, members: Sequence[Member]) -> None:
        """Take members out of the group; what they owned is free at once."""
        group = self.group
        for member in members:
            self.records += self._removal(member.member_id)
        gone = [member.regex for member in members if member.regex is not None]
        for regex in sorted(set(gone)):
            if group.regexes[regex] == gone.count(regex):
                self.records.append(self._regex_tombstone(regex))
        names = group.subscribed_names(without=members)
        self.records.append(
            GroupEpochBumped(
                group_id=group.group_id,
                epoch=group.epoch + 1,
                metadata_hash=self.world.hashes.of(names),
            )
        )
        for member in members:
            self.cancel_timers(member.member_id)

    def _removal(self, member_id: str) -> list[ConsumerRecord]:
        kinds = (
            Kind.CURRENT_MEMBER_ASSIGNMENT,
            Kind.TARGET_ASSIGNMENT_MEMBER,
            Kind.MEMBER_METADATA,
        )
        group_id = self.group.group_id
        return [Forgotten(kind=kind, group_id=group_id, item=member_id) for kind in kinds]

    def _regex_tombstone(self, regex: str) -> ConsumerRecord:
        return Forgotten(kind=Kind.REGULAR_EXPRESSION, group_id=self.group.group_id, item=regex)

    def forget_regex(self, regex: str) -> None:
        self.records.append(self._regex_tombstone(regex))


def _known(group: ConsumerGroup, member: Member) -> tuple[Member, ...]:
    """The member as the group counts it; a new one is not counted yet, a replaced one under its old id."""
    if member.member_id in group.members:
        return (group.members[member.member_id],)
    old = group.static_member(member.instance_id)
    return () if old is None else (old,)
