"""The positions of all groups of one partition of `__consumer_offsets`.

INVARIANT  a position is what the last record about it said, by its place in the log; one that was written in
           a transaction counts from the marker on, and only if the marker commits.
PREVENTS   an offset committed by an aborted transaction making a consumer skip what was never processed.
PROVED BY  tests/txn/test_offsets_model.py::test_offsets_are_what_a_plain_log_reader_would_say,
           tests/txn/test_offsets_machine.py::test_a_deletion_takes_away_what_every_open_transaction_would_bring

Whether somebody may commit at all is the group's to say (`groups_machine.py`); here are only the offsets.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition

from ..runtime.decision import Decision, Fields, Producer
from .commands import Commit, OffsetCommit, OffsetFetch, TopicsDeleted, TxnOffsetCommit, Wanted
from .config import GroupConfig
from .records import NO_TIMESTAMP, NO_TOPIC_ID, OffsetCommitted, OffsetForgotten

# What librdkafka calls RD_KAFKA_OFFSET_STORED. Kafka says -1 beside UNSTABLE_OFFSET_COMMIT, and nobody is to read it; but
# where its assignment has changed meanwhile, librdkafka does, and goes by auto.offset.reset.
ASK_AGAIN: Final = -1000
NO_PRODUCER: Final = -1
NO_OFFSET: Final = -1
TIMESTAMP_MAX: Final = 2**63 - 1


class Position(NamedTuple):
    """A committed position, and where in the log it was committed."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID
    record_offset: int


# From what time on a position's retention counts; None while it may not expire at all.
BaseTimestamp = Callable[[Position], int]


class OffsetsMachine:
    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.positions: dict[str, dict[TopicPartition, Position]] = {}
        # What open transactions would change: producer -> (group, partition) -> position.
        self.pending: dict[int, dict[tuple[str, TopicPartition], Position]] = {}
        # The same the other way round: group -> partition -> producers, in the order they wrote.
        self.open_by_group: dict[str, dict[TopicPartition, list[int]]] = {}

    # -- decide ----------------------------------------------------------------------------------

    def commit(self, command: OffsetCommit, now_ms: int) -> Decision:
        """The reply is one error code for each position, in their order."""
        expire_timestamp = NO_TIMESTAMP
        if command.retention_time_ms != -1:
            expire_timestamp = min(now_ms + command.retention_time_ms, TIMESTAMP_MAX)
        return self._commit(command.group_id, command.commits, now_ms, expire_timestamp)

    def commit_in_transaction(self, command: TxnOffsetCommit, now_ms: int) -> Decision:
        if command.producer_id < 0:  # no marker ends it, and -1 says that there is no transaction
            refusal = ErrorCode.invalid_producer_id_mapping
            return Decision(reply=[refusal] * len(command.commits))
        decision = self._commit(command.group_id, command.commits, now_ms, NO_TIMESTAMP)
        return Decision(
            reply=decision.reply,
            records=decision.records,
            producer=Producer(command.producer_id, command.producer_epoch),
        )

    def _commit(
        self, group_id: str, commits: tuple[Commit, ...], now_ms: int, expire_timestamp: int
    ) -> Decision:
        reply, records = [], []
        for commit in commits:
            if java_length(commit.metadata) > self.config.offset_metadata_max_bytes:
                reply.append(ErrorCode.offset_metadata_too_large)
                continue
            reply.append(ErrorCode.none)
            record = OffsetCommitted(
                group_id=group_id,
                topic=commit.topic,
                partition=commit.partition,
                committed_offset=commit.offset,
                leader_epoch=commit.leader_epoch,
                metadata=commit.metadata,
                commit_timestamp=now_ms,
                expire_timestamp=expire_timestamp,
                topic_id=commit.topic_id,
            )
            records.append(record)
        return Decision(reply=reply, records=tuple(records))

    def fetch(self, command: OffsetFetch) -> list[Fields]:
        """The positions asked for, topic by topic. `topic_id` is the one that was asked by, if any.

        When all are asked for, each row says of which topic it is: one name may have been that of several.
        """
        known = self.positions.get(command.group_id, {})
        unstable = self.open_by_group.get(command.group_id, {}) if command.require_stable else {}
        wanted = command.topics
        if wanted is None:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in known:
                by_topic.setdefault(topic, []).append(partition)
            wanted = tuple(
                Wanted(topic, NO_TOPIC_ID, tuple(sorted(by_topic[topic])))
                for topic in sorted(by_topic)
            )
        topics = []
        told: set[TopicPartition] = set()
        for topic, topic_id, partitions in wanted:
            rows = []
            for partition in partitions:
                key = TopicPartition(topic, partition)
                # Once in an answer: four bytes ask for it again, and its metadata may be kilobytes.
                if key in told:
                    continue
                told.add(key)
                position = known.get(key)
                if position is not None and is_of_another(topic_id, position.topic_id):
                    position = None
                row = _row(partition, position, is_unstable=key in unstable)
                if command.topics is None and position is not None:
                    # What a transaction may yet change is not told, so it need not be of this topic.
                    row["topic_id"] = NO_TOPIC_ID if key in unstable else position.topic_id
                rows.append(row)
            topics.append({"name": topic, "topic_id": topic_id, "partitions": rows})
        return topics

    def forget_all(self, group_id: str) -> Iterator[OffsetForgotten]:
        """What deleting the group writes; pending positions must not come back with their marker."""
        known = self.positions.get(group_id, {})
        yield from (_tombstone(group_id, key) for key in known)
        for key in self.open_by_group.get(group_id, {}):
            if key not in known:
                yield _tombstone(group_id, key)

    def forget(self, group_id: str, key: TopicPartition) -> OffsetForgotten | None:
        is_there = key in self.positions.get(group_id, {}) or key in self.open_by_group.get(
            group_id, {}
        )
        return _tombstone(group_id, key) if is_there else None

    def topics_deleted(self, command: TopicsDeleted) -> Decision:
        """A position that names the id of another topic of that name stays.

        And with it whatever has its key, which is told from it by that id: a tombstone would take both.
        1. the topic goes, and the word of it waits until all groups are read   2. it is made anew, and a position of it is
        stored beside the old one, one of the two in a transaction   3. the word comes.
        """
        ids = dict(command.topics)
        is_doomed: dict[tuple[str, TopicPartition], bool] = {}

        def look(group_id: str, key: TopicPartition, position: Position) -> None:
            if key.topic in ids:
                is_gone = position.topic_id in (NO_TOPIC_ID, ids[key.topic])
                is_doomed[group_id, key] = is_gone and is_doomed.get((group_id, key), True)

        for group_id, positions in self.positions.items():
            for key, position in positions.items():
                look(group_id, key, position)
        for pending in self.pending.values():
            for (group_id, key), position in pending.items():
                look(group_id, key, position)
        doomed = [each for each, is_gone in is_doomed.items() if is_gone]
        return Decision(records=tuple(_tombstone(group_id, key) for group_id, key in doomed))

    def expired(
        self,
        group_id: str,
        base_timestamp: BaseTimestamp,
        is_subscribed_to: Callable[[str], bool],
        now_ms: int,
    ) -> tuple[list[OffsetForgotten], bool]:
        """The tombstones that are due, and whether nothing is left then (KIP-211)."""
        positions = self.positions.get(group_id, {})
        open_here = self.open_by_group.get(group_id, {})
        tombstones = []
        for key, position in positions.items():
            if is_subscribed_to(key.topic) or key in open_here:
                continue
            if position.expire_timestamp != NO_TIMESTAMP:
                is_due = now_ms >= position.expire_timestamp
            else:
                is_due = now_ms - base_timestamp(position) >= self.config.offsets_retention_ms
            if is_due:
                tombstones.append(_tombstone(group_id, key))
        return tombstones, len(tombstones) == len(positions) and not open_here

    # -- apply -----------------------------------------------------------------------------------

    def apply(
        self, record: OffsetCommitted | OffsetForgotten, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        key = TopicPartition(record.topic, record.partition)
        if isinstance(record, OffsetForgotten):
            self._forget(record.group_id, key)
            return
        position = Position(
            record.committed_offset,
            record.leader_epoch,
            record.metadata,
            record.commit_timestamp,
            record.expire_timestamp,
            record.topic_id,
            offset,
        )
        if producer_id == NO_PRODUCER:
            positions = self.positions.get(record.group_id)
            if positions is None:
                positions = self.positions[record.group_id] = {}
            positions[key] = position
            return
        self.pending.setdefault(producer_id, {})[record.group_id, key] = position
        producers = self.open_by_group.setdefault(record.group_id, {}).setdefault(key, [])
        if producer_id not in producers:
            producers.append(producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        for (group_id, key), position in self.pending.pop(producer_id, {}).items():
            self._close(group_id, key, producer_id)
            if not commit:
                continue
            positions = self.positions.setdefault(group_id, {})
            current = positions.get(key)
            # 1. a transaction writes offset 5   2. somebody commits offset 9 outside   3. the marker comes.
            # The last record counts, not the last marker: 9 it is, as after a compaction that dropped 1.
            if current is None or current.record_offset < position.record_offset:
                positions[key] = position

    def _forget(self, group_id: str, key: TopicPartition) -> None:
        positions = self.positions.get(group_id)
        if positions is not None and positions.pop(key, None) is not None and not positions:
            del self.positions[group_id]
        for producer_id in list(self.open_by_group.get(group_id, {}).get(key, ())):
            pending = self.pending[producer_id]
            del pending[group_id, key]
            if not pending:
                del self.pending[producer_id]
            self._close(group_id, key, producer_id)

    def _close(self, group_id: str, key: TopicPartition, producer_id: int) -> None:
        by_partition = self.open_by_group[group_id]
        by_partition[key].remove(producer_id)
        if not by_partition[key]:
            del by_partition[key]
        if not by_partition:
            del self.open_by_group[group_id]


def java_length(text: str) -> int:
    """What String.length() says: UTF-16 units. The limit's name says bytes, Kafka counts these."""
    return len(text) + sum(char > "\uffff" for char in text)


def is_of_another(asked: UUID, known: UUID) -> bool:
    """Whether these are two topics. Zero is any: Kafka's records, and old ones of ours, name none."""
    return NO_TOPIC_ID not in (asked, known) and asked != known


def _tombstone(group_id: str, key: TopicPartition) -> OffsetForgotten:
    return OffsetForgotten(group_id=group_id, topic=key.topic, partition=key.partition)


def _row(partition: int, position: Position | None, *, is_unstable: bool) -> Fields:
    if is_unstable or position is None:
        error = ErrorCode.unstable_offset_commit if is_unstable else ErrorCode.none
        return {
            "partition_index": partition,
            "committed_offset": ASK_AGAIN if is_unstable else NO_OFFSET,
            "committed_leader_epoch": -1,
            "metadata": "",
            "error_code": error,
        }
    return {
        "partition_index": partition,
        "committed_offset": position.offset,
        "committed_leader_epoch": position.leader_epoch,
        "metadata": position.metadata,
        "error_code": ErrorCode.none,
    }
