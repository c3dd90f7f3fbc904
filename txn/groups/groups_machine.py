"""All that one partition of `__consumer_offsets` knows: groups of both protocols and their positions.

INVARIANT  a group id names one group, of one kind; its offsets outlive its kind but not the group.
PREVENTS   a classic and a new consumer both believing that they own a partition of one group.
PROVED BY  tests/txn/test_groups_machine.py::test_a_group_with_members_is_of_one_kind_only

The kinds decide for themselves (`classic_machine.py`, `consumer_machine.py`), the positions are in
`offsets_machine.py`. Here is what needs more than one of them: whose group it is, who may commit, what
deleting and expiring take along.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition

from ..runtime.decision import Decision, Fields, LogRecord, SetTimer, TimerKey
from .classic_group import ClassicGroup, Phase
from .classic_machine import ClassicMachine
from .classic_turn import GroupChanged, join_fields
from .commands import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TopicsDeleted,
    TxnOffsetCommit,
)
from .config import GroupConfig
from .groups_ports import ConsumerGroups
from .groups_view import describe_consumer_groups, describe_groups, list_groups
from .offsets_machine import OffsetsMachine, Position
from .records import (
    GroupForgotten,
    GroupMetadata,
    OffsetCommitted,
    OffsetForgotten,
)

EXPIRE: Final[TimerKey] = ("expire",)
EXPIRE_GROUPS_MAX: Final = 500  # looked at in one go: the loop belongs to others too
EXPIRE_PAUSE_MS: Final = 10


class SweepWent:
    """A step: what this round of expiry has yet to look at, and which groups it found without members, and when."""

    __slots__ = ("empty_since", "left")

    def __init__(self, left: list[str], empty_since: Mapping[str, int]) -> None:
        self.left = left
        self.empty_since = empty_since


class GroupsMachine:
    def __init__(
        self, config: GroupConfig, consumer: ConsumerGroups, elapsed: Callable[[], float]
    ) -> None:
        self.config = config
        self.classic = ClassicMachine(config, elapsed)
        self.consumer = consumer
        self.offsets = OffsetsMachine(config)
        self._sweep: list[str] = []
        # Groups of the new protocol that have been without members since this was noted. Their records don't say.
        self._empty_since: dict[str, int] = {}

    # -- decide ----------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Decision:
        return self._ON_COMMAND[type(command)](self, command, now_ms)

    def _classic_command(
        self, command: SyncGroup | Heartbeat | LeaveGroup, now_ms: int
    ) -> Decision:
        """A group of the other kind has no classic members: the classic machine answers that it knows none."""
        return self.classic.decide(command, now_ms)

    def _join(self, command: JoinGroup, now_ms: int) -> Decision:
        group_id = command.group_id
        if not self.consumer.has(group_id):
            return self.classic.decide(command, now_ms)
        if not self.consumer.is_empty(group_id):
            return Decision(reply=join_fields(ErrorCode.inconsistent_group_protocol))
        decision = self.classic.decide(command, now_ms)
        return _after(self.consumer.tombstones(group_id), decision)

    def _consumer_heartbeat(self, command: ConsumerGroupHeartbeat, now_ms: int) -> Decision:
        classic = self.classic.groups.get(command.group_id)
        if classic is None:
            return self.consumer.decide(command, now_ms)
        if command.body.member_epoch != 0:
            return _refuse_consumer(f"Group {command.group_id} is not a consumer group.")
        if classic.phase is not Phase.EMPTY:
            return _refuse_consumer(
                f"Cannot upgrade classic group {command.group_id} to consumer group because "
                "online upgrade is disabled."
            )
        decision = self.consumer.decide(command, now_ms)
        return _after((GroupForgotten(group_id=command.group_id),), decision)

    def _commit(self, command: OffsetCommit, now_ms: int) -> Decision:
        group_id = command.group_id
        group = self.classic.groups.get(group_id)
        effects: tuple[SetTimer, ...] = ()
        if self.consumer.has(group_id):
            refusal = self.consumer.refuse_commit(command)
        elif group is None:
            refusal = ErrorCode.none  # the offsets make the group
            if command.generation_id_or_member_epoch >= 0:
                newer = command.api_version >= 9
                refusal = ErrorCode.group_id_not_found if newer else ErrorCode.illegal_generation
        else:
            refusal = group.refuse_commit(
                command.member_id,
                command.group_instance_id,
                command.generation_id_or_member_epoch,
                in_txn=False,
            )
            if group.phase in (Phase.STABLE, Phase.PREPARING_REBALANCE):
                effects = self.classic.keep_alive(group, command.member_id)
        if refusal is not ErrorCode.none:
            return Decision(reply=[refusal] * len(command.commits))
        return replace(self.offsets.commit(command, now_ms), effects=effects)

    def _commit_in_transaction(self, command: TxnOffsetCommit, now_ms: int) -> Decision:
        group = self.classic.groups.get(command.group_id)
        if self.consumer.has(command.group_id):
            refusal = self.consumer.refuse_commit(command)
            if refusal is ErrorCode.stale_member_epoch:
                refusal = ErrorCode.illegal_generation  # producers know no other word for it
        elif group is None:
            unknown = command.generation_id >= 0
            refusal = ErrorCode.illegal_generation if unknown else ErrorCode.none
        else:
            refusal = group.refuse_commit(
                command.member_id, command.group_instance_id, command.generation_id, in_txn=True
            )
            if refusal is ErrorCode.none and command.began is not None:
                refusal = group.refuse_older(command.began)
        if refusal is not ErrorCode.none:
            return Decision(reply=[refusal] * len(command.commits))
        return self.offsets.commit_in_transaction(command, now_ms)

    def _fetch(self, command: OffsetFetch, now_ms: int) -> Decision:
        error = ErrorCode.none
        if self.consumer.has(command.group_id):
            error = self.consumer.refuse_fetch(command)
        topics = self.offsets.fetch(command) if error is ErrorCode.none else []
        return Decision(reply={"group_id": command.group_id, "topics": topics, "error_code": error})

    def _delete_offsets(self, command: OffsetDelete, now_ms: int) -> Decision:
        group_id = command.group_id
        group = self.classic.groups.get(group_id)
        if group is None and not self.consumer.has(group_id):
            return Decision(reply={"error_code": ErrorCode.group_id_not_found, "topics": []})
        if (
            group is not None
            and group.phase is not Phase.EMPTY
            and not group.uses_consumer_protocol
        ):
            return Decision(reply={"error_code": ErrorCode.non_empty_group, "topics": []})
        records: list[LogRecord] = []
        topics: list[Fields] = []
        for topic, partitions in command.topics:
            error = ErrorCode.none
            if self._is_subscribed_to(group_id, topic):
                error = ErrorCode.group_subscribed_to_topic
            rows = [{"partition_index": index, "error_code": error} for index in partitions]
            topics.append({"name": topic, "partitions": rows})
            if error is ErrorCode.none:
                found = (
                    self.offsets.forget(group_id, TopicPartition(topic, i))
                    for i in dict.fromkeys(partitions)
                )
                records.extend(record for record in found if record is not None)
        return Decision(reply={"error_code": ErrorCode.none, "topics": topics}, records=records)

    def _delete_groups(self, command: DeleteGroups, now_ms: int) -> Decision:
        records: list[LogRecord] = []
        results: list[Fields] = []
        for group_id in command.group_ids:
            error = self._refuse_delete(group_id)
            results.append({"group_id": group_id, "error_code": error})
            if error is ErrorCode.none:
                records.extend(self.offsets.forget_all(group_id))
                records.extend(self._tombstones(group_id))
        return Decision(reply=results, records=records)

    def _refuse_delete(self, group_id: str) -> ErrorCode:
        group = self.classic.groups.get(group_id)
        if group is not None:
            is_empty = group.phase is Phase.EMPTY
        elif self.consumer.has(group_id):
            is_empty = self.consumer.is_empty(group_id)
        else:
            return ErrorCode.group_id_not_found
        return ErrorCode.none if is_empty else ErrorCode.non_empty_group

    def _describe(self, command: DescribeGroups, now_ms: int) -> Decision:
        return Decision(reply=describe_groups(self.classic.groups, self.consumer, command))

    def _describe_consumer(self, command: ConsumerGroupDescribe, now_ms: int) -> Decision:
        return Decision(reply=describe_consumer_groups(self.classic.groups, self.consumer, command))

    def _list(self, command: ListGroups, now_ms: int) -> Decision:
        return Decision(reply=list_groups(self.classic.groups, self.consumer, command))

    def _topics_deleted(self, command: TopicsDeleted, now_ms: int) -> Decision:
        return self.offsets.topics_deleted(command)

    # -- time ------------------------------------------------------------------------------------

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        if key == EXPIRE:
            return self._expire(now_ms)
        machine = self.consumer if str(key[0]).startswith("consumer") else self.classic
        return machine.tick(key, now_ms)

    def loaded(self, now_ms: int) -> Decision:
        classic, consumer = self.classic.loaded(now_ms), self.consumer.loaded(now_ms)
        first_round = SetTimer(EXPIRE, self.config.offsets_retention_check_interval_ms)
        return Decision(
            records=(*classic.records, *consumer.records),
            steps=(*classic.steps, *consumer.steps),
            effects=(*classic.effects, *consumer.effects, first_round),
        )

    def owners_of(self, command: Any) -> Sequence[str] | None:
        group_id = getattr(command, "group_id", None)
        if group_id is not None:
            return (group_id,)
        ids: Sequence[str] | None = getattr(command, "group_ids", None)
        return ids

    def woken(self, owner: str, now_ms: int) -> Decision:
        classic, consumer = self.classic.woken(owner, now_ms), self.consumer.woken(owner, now_ms)
        return Decision(
            steps=(*classic.steps, *consumer.steps), effects=(*classic.effects, *consumer.effects)
        )

    def _expire(self, now_ms: int) -> Decision:
        """Forget positions whose retention is over, then groups that have nothing left (KIP-211).

        Who has yet to be read from the log after a move has its turn in a later round.
        """
        ids = self._sweep or sorted({*self.classic.groups, *self.consumer.group_ids()})
        chunk, left = ids[:EXPIRE_GROUPS_MAX], ids[EXPIRE_GROUPS_MAX:]
        records: list[LogRecord] = []
        for group_id in chunk:
            records.extend(self._expire_group(group_id, now_ms))
        found = dict.fromkeys(filter(self._is_without_members, chunk), now_ms)
        pause_ms = EXPIRE_PAUSE_MS if left else self.config.offsets_retention_check_interval_ms
        return Decision(
            records=records,
            steps=(SweepWent(left, found),),
            effects=(SetTimer(EXPIRE, pause_ms),),
        )

    def _expire_group(self, group_id: str, now_ms: int) -> Iterable[LogRecord]:
        group = self.classic.groups.get(group_id)
        base: Callable[[Position], int] | None
        if group is None:
            if not self.consumer.has(group_id):
                return ()
            is_empty = self.consumer.is_empty(group_id)
            # From its end on, as of a classic group (KIP-211). Kafka goes by the age of the position, and forgets those
            # of quiet partitions when a group that has run for long is started anew.
            base = self._base_of_empty(group_id, now_ms) if is_empty else _commit_time
        else:
            base = _retention_base(group)
            is_empty = group.phase is Phase.EMPTY and not group.pending_joins
        has_offsets = group_id in self.offsets.positions
        if base is None and has_offsets:
            return ()
        tombstones, all_gone = self.offsets.expired(
            group_id,
            base or _commit_time,
            lambda topic: self._is_subscribed_to(group_id, topic),
            now_ms,
        )
        if not (all_gone and is_empty):
            return tombstones
        return (*tombstones, *self._tombstones(group_id))

    def _base_of_empty(self, group_id: str, now_ms: int) -> Callable[[Position], int]:
        since_ms = self._empty_since.get(group_id, now_ms)
        return lambda position: max(since_ms, position.commit_timestamp)

    def _is_without_members(self, group_id: str) -> bool:
        return self.consumer.has(group_id) and self.consumer.is_empty(group_id)

    # -- apply -----------------------------------------------------------------------------------

    def apply(self, change: Any, offset: int = -1, producer_id: int = -1) -> None:
        if isinstance(change, OffsetCommitted):
            if change.group_id not in self.classic.groups and not self.consumer.has(
                change.group_id
            ):
                self.classic.ensure_simple(change.group_id)
            self.offsets.apply(change, offset, producer_id)
        elif isinstance(change, OffsetForgotten):
            self.offsets.apply(change, offset, producer_id)
        elif isinstance(change, GroupMetadata | GroupForgotten | GroupChanged):
            self.classic.apply(change)
        elif isinstance(change, SweepWent):
            self._sweep = change.left
            for group_id in filter(self._is_without_members, change.empty_since):
                self._empty_since.setdefault(group_id, change.empty_since[group_id])
        else:
            self.consumer.apply(change)
            group_id = getattr(change, "group_id", "")
            if group_id in self._empty_since and not self._is_without_members(group_id):
                del self._empty_since[group_id]
            self._make_way(group_id)

    def _make_way(self, group_id: str) -> None:
        """Offsets in the log before the group's own record had made a group of the other kind out of it."""
        group = self.classic.groups.get(group_id)
        if group is not None and group.is_simple and self.consumer.has(group_id):
            del self.classic.groups[group_id]

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.offsets.end_transaction(producer_id, commit=commit)

    # -- both kinds ------------------------------------------------------------------------------

    def _is_subscribed_to(self, group_id: str, topic: str) -> bool:
        group = self.classic.groups.get(group_id)
        if group is not None:
            return group.is_subscribed_to(topic)
        return self.consumer.is_subscribed_to(group_id, topic)

    def _tombstones(self, group_id: str) -> Iterable[LogRecord]:
        if group_id in self.classic.groups:
            return (GroupForgotten(group_id=group_id),)
        return self.consumer.tombstones(group_id)

    _ON_COMMAND: ClassVar[Mapping[type, Callable[..., Decision]]] = {
        JoinGroup: _join,
        SyncGroup: _classic_command,
        Heartbeat: _classic_command,
        LeaveGroup: _classic_command,
        ConsumerGroupHeartbeat: _consumer_heartbeat,
        ConsumerGroupDescribe: _describe_consumer,
        OffsetCommit: _commit,
        TxnOffsetCommit: _commit_in_transaction,
        OffsetFetch: _fetch,
        OffsetDelete: _delete_offsets,
        DescribeGroups: _describe,
        ListGroups: _list,
        DeleteGroups: _delete_groups,
        TopicsDeleted: _topics_deleted,
    }


def _retention_base(group: ClassicGroup) -> Callable[[Position], int] | None:
    """From when on a position's retention counts: Kafka's ClassicGroup.offsetExpirationCondition.

    But what is stored while nobody is a member (by a person, or a consumer that assigns itself) is kept as long as
    anything else. There it goes with the rest, maybe a minute later.
    """
    if group.phase is Phase.EMPTY:
        since_ms = group.since_ms
        return lambda position: max(since_ms, position.commit_timestamp)
    if (
        group.phase is Phase.STABLE
        and group.uses_consumer_protocol
        and group.subscribed is not None
    ):
        return _commit_time
    return None


def _commit_time(position: Position) -> int:
    return position.commit_timestamp


def _after(records: Iterable[LogRecord], decision: Decision) -> Decision:
    """The other kind's group is forgotten first, if anything comes of the decision at all."""
    if not decision.records and not decision.steps:
        return decision
    return replace(decision, records=(*records, *decision.records))


def _refuse_consumer(message: str) -> Decision:
    return Decision(reply={"error_code": ErrorCode.group_id_not_found, "error_message": message})
