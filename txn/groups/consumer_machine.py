"""All consumer groups (KIP-848) of one partition of `__consumer_offsets`.

INVARIANT  what is answered about a group follows from its records; memory beyond them may be lost at any time.
PREVENTS   a coordinator that takes over fencing members that did nothing wrong.
PROVED BY  tests/txn/test_consumer_simulation.py::test_members_keep_what_they_own_when_the_coordinator_moves

Deciding a heartbeat is in `consumer_heartbeat.py`, what it does to a group in `consumer_turn.py`. Here is which
group it is about, what time does to groups, and what others ask about them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import NOTHING, Decision, Effect, Fields, LogRecord, SetTimer, TimerKey
from .commands import ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch, TxnOffsetCommit
from .consumer_config import ConsumerConfig
from .consumer_group import ConsumerGroup, GroupState, Resolved
from .consumer_heartbeat import heartbeat, leave
from .consumer_member import LEAVE_STATIC_EPOCH, MemberState
from .consumer_records import (
    ConsumerRecord,
    Forgotten,
    GroupEpochBumped,
    Kind,
    RegexResolved,
)
from .consumer_requests import Refusal, refuse, refused, said
from .consumer_scan import Scan, go_on
from .consumer_topics import TopicHashes, Topics, TopicsChanged
from .consumer_turn import (
    Downgrade,
    JoinAwaited,
    MetadataChecked,
    ScanMoved,
    Soft,
    Turn,
    World,
    rebalance_timer,
    regex_timer,
    session_timer,
)
from .consumer_view import describe_group, refuse_commit, refuse_fetch

Step = JoinAwaited | MetadataChecked | ScanMoved | TopicsChanged


class ConsumerMachine:
    """`overrides` gives what was set for one group (ConfigType.GROUP)."""

    def __init__(
        self,
        config: ConsumerConfig,
        topics: Topics,
        overrides: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.config = config
        self.topics = topics
        self.groups: dict[str, ConsumerGroup] = {}
        self._overrides = overrides
        self.hashes = TopicHashes(topics)
        self._soft: dict[str, Soft] = {}
        self._new_topics_version = topics.version
        self.downgrade: Downgrade | None = None  # set by who also has the classic groups

    # ---- decide -------------------------------------------------------------------------------

    def decide(self, command: ConsumerGroupHeartbeat, now_ms: int) -> Decision:
        asked = said(command)
        impossible = refuse(asked, self.config.group_consumer_assignors)
        if impossible is not None:
            return refused(impossible)
        group = self.groups.get(asked.group_id)
        if asked.is_leave:
            if group is None:
                return _no_group(f"Group {asked.group_id} not found.")
            return leave(self.turn(group, now_ms), asked)
        if group is None:
            if not asked.is_join:
                return _no_group(f"Consumer group {asked.group_id} not found.")
            group = ConsumerGroup(group_id=asked.group_id)
        return heartbeat(self.turn(group, now_ms), asked)

    def turn(self, group: ConsumerGroup, now_ms: int) -> Turn:
        world = World(
            config=self.config,
            times=self.config.for_group(self._overrides(group.group_id)),
            topics=self.topics,
            hashes=self.hashes,
            new_topics_version=self._new_topics_version,
            now_ms=now_ms,
            downgrade=self.downgrade,
        )
        return Turn(group, self._soft.get(group.group_id) or Soft(), world)

    # ---- apply --------------------------------------------------------------------------------

    def apply(self, change: ConsumerRecord | Step) -> None:
        match change:
            case MetadataChecked():
                self._soft.setdefault(change.group_id, Soft()).metadata_checked = True
            case ScanMoved():
                self._soft.setdefault(change.group_id, Soft()).scan = change.scan
            case JoinAwaited():
                joining = self._soft.setdefault(change.group_id, Soft()).joining
                (joining.add if change.awaited else joining.discard)(change.member_id)
            case TopicsChanged():
                self._topics_changed(change)
            case Forgotten():
                self._forget(change)
            case _:
                group = self.groups.get(change.group_id)
                if group is None:
                    group = self.groups[change.group_id] = ConsumerGroup(group_id=change.group_id)
                group.apply(change)

    def _forget(self, tombstone: Forgotten) -> None:
        group = self.groups.get(tombstone.group_id)
        if group is None:
            return  # the log still had the tombstone, and nothing of what it stands for
        if tombstone.kind is Kind.GROUP_METADATA:
            del self.groups[tombstone.group_id]
            self._soft.pop(tombstone.group_id, None)
            return
        if tombstone.kind is Kind.MEMBER_METADATA and tombstone.group_id in self._soft:
            self._soft[tombstone.group_id].joining.discard(tombstone.item)
        group.apply(tombstone)

    def _topics_changed(self, change: TopicsChanged) -> None:
        self.hashes.changed(change.names)
        if change.any_created:
            self._new_topics_version = self.topics.version
        for group_id, soft in self._soft.items():
            group = self.groups.get(group_id)
            if group is not None and any(group.is_subscribed_to(name) for name in change.names):
                soft.metadata_checked = False

    # ---- time ---------------------------------------------------------------------------------

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        kind, group_id = str(key[0]), str(key[1])
        group = self.groups.get(group_id)
        if group is None:
            return NOTHING
        turn = self.turn(group, now_ms)
        if key == regex_timer(group_id):
            return self._scan_on(turn)
        member = group.members.get(str(key[2]))
        if member is None:
            return NOTHING
        if kind == "consumer-rebalance":
            # It gave up in time, or it is a static member that went away while this was running.
            is_late = member.state is MemberState.UNREVOKED_PARTITIONS
            if not is_late or member.member_epoch == LEAVE_STATIC_EPOCH:
                return NOTHING
        if kind in ("consumer-join", "consumer-sync") and member.classic is None:
            return NOTHING  # it changed its protocol instead
        return turn.fence([member])

    def loaded(self, now_ms: int) -> Decision:
        """Everybody gets a whole session: who was silent for how long, only the last coordinator knew."""
        effects: list[Effect] = []
        for group_id in sorted(self.groups):
            effects.extend(self.woken(group_id, now_ms).effects)
        return Decision(effects=tuple(effects))

    def woken(self, group_id: str, now_ms: int) -> Decision:
        """`loaded`, of a group that was read later."""
        group = self.groups.get(group_id)
        if group is None:
            return NOTHING
        effects: list[Effect] = []
        times = self.config.for_group(self._overrides(group_id))
        for member_id in sorted(group.members):
            member = group.members[member_id]
            effects.append(SetTimer(session_timer(group_id, member_id), times.session_timeout_ms))
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                timer = rebalance_timer(group_id, member_id)
                effects.append(SetTimer(timer, member.rebalance_timeout_ms))
        return Decision(effects=tuple(effects))

    def _scan_on(self, turn: Turn) -> Decision:
        scan = turn.soft.scan
        if scan is None:
            return NOTHING
        group_id = turn.group.group_id
        if not scan.is_over:
            scan = go_on(scan)
        if not scan.is_over:
            again = SetTimer(regex_timer(group_id), 0)
            return Decision(steps=(ScanMoved(group_id, scan),), effects=(again,))
        self._resolve(turn, scan)
        turn.steps.append(ScanMoved(group_id, None))
        return turn.decision()

    def _resolve(self, turn: Turn, scan: Scan) -> None:
        """Write down what the expressions mean, and raise the group epoch if that changed anything."""
        group = turn.group
        bump = False
        resolved: dict[str, Resolved] = {}
        for regex, topics in zip(scan.regexes, scan.found, strict=True):
            if not group.regexes[regex]:
                continue  # nobody has it any more
            now = Resolved(
                topics=frozenset(topics), version=scan.version, timestamp=scan.started_ms
            )
            then = group.resolved.get(regex)
            # Also when it means nothing: its members may have given up another that meant something. Kafka 4.3
            # leaves those topics' partitions without an owner when other members name the same topics.
            bump = bump or then is None or then.topics != now.topics
            resolved[regex] = now
            turn.records.append(
                RegexResolved(
                    group_id=group.group_id,
                    regex=regex,
                    topics=tuple(sorted(now.topics)),
                    version=now.version,
                    timestamp=now.timestamp,
                )
            )
        number = self.hashes.of(group.subscribed_names(resolved=resolved))
        if bump or number != group.metadata_hash:
            turn.records.append(
                GroupEpochBumped(
                    group_id=group.group_id, epoch=group.epoch + 1, metadata_hash=number
                )
            )
            turn.steps.append(MetadataChecked(group.group_id))

    # ---- what others ask ----------------------------------------------------------------------

    def group_ids(self) -> Iterable[str]:
        return self.groups.keys()

    def has(self, group_id: str) -> bool:
        return group_id in self.groups

    def is_empty(self, group_id: str) -> bool:
        return self.groups[group_id].state is GroupState.EMPTY

    def state(self, group_id: str) -> str:
        return self.groups[group_id].state.value

    def is_subscribed_to(self, group_id: str, topic: str) -> bool:
        return self.groups[group_id].is_subscribed_to(topic)

    def refuse_commit(self, command: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
        return refuse_commit(self.groups[command.group_id], command, self.topics)

    def refuse_fetch(self, command: OffsetFetch) -> ErrorCode:
        return refuse_fetch(self.groups[command.group_id], command)

    def tombstones(self, group_id: str) -> Sequence[LogRecord]:
        return self.groups[group_id].tombstones()

    def describe(self, group_id: str) -> Fields:
        default = self.config.group_consumer_assignors[0]
        return describe_group(self.groups[group_id], default, self.topics)


def _no_group(message: str) -> Decision:
    return refused(Refusal(ErrorCode.group_id_not_found, message))
