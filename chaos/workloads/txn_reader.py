"""A read_committed consumer on the wire: it stops at the last stable offset and leaves out what was aborted.

INVARIANT  a record of an aborted transaction is left out from the transaction's first offset up to its abort marker, and its
           position goes behind everything that it left out.
PREVENTS   a checker that takes the client's mistakes for the cluster's.
PROVED BY  tests/chaos/test_txn_reader.py::test_records_of_an_aborted_transaction_are_left_out_up_to_its_marker
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.batch import headers_of
from fencepost.cluster.wire.records import Record, read_control, read_records

from ..checkers.observations import Told
from ..checkers.txn_history import NO_NUMBER, Polled, Txn
from .cluster_client import (
    EARLIEST,
    LOOK_AGAIN,
    READ_COMMITTED,
    ClusterClient,
    Damaged,
    Leader,
    end_offset,
    fetch,
)
from .coordinator_client import GROUP, Coordinator
from .txn_answers import BrokenPromise, Partition
from .txn_keys import identity, key_of

ASK_END_ODDS: Final = 0.1
ANY_EPOCH: Final = -1
OFFSET_FETCH_VERSION: Final = 7
WAIT_MS: Final = 50
# confluent_kafka ends metadata with it when it commits, and reads on up to one when it asks, past the end of those without
# (librdkafka's issue 4649 is of the kind).
C_END: Final = "\0"
RETRY_PAUSE_S: Final = 0.1


def committed_records(
    data: bytes | memoryview, aborted: Iterable[tuple[int, int]], position: int
) -> tuple[list[Record], int]:
    """The records at or behind `position` of committed transactions, and the next position.

    `aborted` are (producer id, first offset), as a fetch answers them. As in Java's consumer (CompletedFetch).
    """
    waiting = sorted((first, producer_id) for producer_id, first in aborted)
    running: dict[int, None] = {}  # producers within an aborted transaction
    found: list[Record] = []
    whole = memoryview(data)
    for at, header in headers_of(whole):
        while waiting and waiting[0][0] <= header.last_offset:
            running[waiting.pop(0)[1]] = None
        if header.is_control:
            records = read_records(whole, at)
            marker = read_control(records[0]) if records else None  # compaction may empty it
            if marker is not None and not marker.commit:
                running.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in running):
            found += [each for each in read_records(whole, at) if each.offset >= position]
        position = max(position, header.next_offset)
    return found, position


class CommittedReader:
    """`positions` are where it goes on; `poll` reads one partition a little further.

    With `on_reset` what it reads may be deleted from its beginning on: then it goes on at the new one, and says so.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        told: Callable[[Told], None] | None = None,
        on_reset: Callable[[Partition, int], None] | None = None,
    ) -> None:
        self.client = client
        self.positions: dict[Partition, int] = {}
        self.stable: dict[Partition, int] = {}
        self.ends: dict[Partition, int] = {}  # behind open transactions, too
        self._told = told
        self._on_reset = on_reset

    async def poll(self, topic: str, partition: int) -> list[Polled] | None:
        """None when nobody could say, which a pause may mend."""
        self.positions.setdefault((topic, partition), 0)
        try:
            leader = await self.client.whom_to_read(topic, partition)
        except Trouble:
            return None
        position = self.position_at(leader, topic, partition)
        try:
            end = await self._maybe_ask_end(leader, topic, partition)
            answer = await fetch(
                leader,
                partition,
                position,
                max_wait_ms=WAIT_MS,
                epoch=leader.leader_epoch,
                isolation_level=READ_COMMITTED,
            )
        except Trouble as trouble:
            if isinstance(trouble, Damaged):
                self.client.served_damage(key_of(topic, partition), position, trouble)
            self.client.forget(topic, partition, leader)
            await self.client.drop(leader.wire)
            return None
        error = answer.error_code
        if error in LOOK_AGAIN:
            self.client.forget(topic, partition, leader)
            return None
        if error is ErrorCode.offset_not_available:
            return None
        if error is ErrorCode.corrupt_message:
            self.client.refused_as_damaged()
            return None
        if leader.follows and error is ErrorCode.offset_out_of_range:
            return None  # it has not copied as much yet
        if error is ErrorCode.offset_out_of_range and self._on_reset is not None:
            await self._reset(leader, topic, partition)
            return None
        if error is not ErrorCode.none:
            where = f"{topic}-{partition} at {position} from node {leader.node_id}"
            raise BrokenPromise(f"{self.client.name}: {error.name} for {where}")
        self.client.was_served(leader)
        self._tell(leader, partition, answer)
        self._tell_end(leader, partition, end, answer)
        self.stable[topic, partition] = answer.last_stable_offset
        self.ends[topic, partition] = answer.high_watermark
        aborted = [
            (each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        ]
        records, position = committed_records(answer.records or b"", aborted, position)
        self.client.dressed.check((topic, partition), records)
        self.positions[topic, partition] = position
        key = self.key_at(leader, topic, partition)
        return [_polled(key, record) for record in records]

    def position_at(self, _leader: Leader, topic: str, partition: int) -> int:
        return self.positions[topic, partition]

    def key_at(self, _leader: Leader, topic: str, partition: int) -> str:
        return key_of(topic, partition)

    def _tell(self, leader: Leader, partition: int, answer: Any) -> None:
        if self._told is not None and not leader.follows:
            key, epoch = f"{leader.topic_id}-{partition}", leader.leader_epoch
            self._told(Told(self.client.name, key, epoch, answer.high_watermark))
            stable = f"{self.client.name}'s stable offset"
            self._told(Told(stable, key, epoch, answer.last_stable_offset))

    async def _reset(self, leader: Leader, topic: str, partition: int) -> None:
        """Java's `auto.offset.reset=earliest`."""
        try:
            start = await end_offset(leader, topic, partition, timestamp=EARLIEST)
        except Trouble:
            return
        if start is not None and self._on_reset is not None:
            self.positions[topic, partition] = start
            self._on_reset((topic, partition), start)

    async def _maybe_ask_end(self, leader: Leader, topic: str, partition: int) -> int | None:
        if self._told is None or leader.follows or self.client.env.rng.random() >= ASK_END_ODDS:
            return None
        return await end_offset(leader, topic, partition, isolation_level=READ_COMMITTED)

    def _tell_end(self, leader: Leader, partition: int, end: int | None, answer: Any) -> None:
        """The last stable offset as ListOffsets has it never goes back, whoever leads (KIP-207). But where a log begins behind an open
        transaction's first record it is stable up to there, and the next leader may not have heard of that deletion."""
        if self._told is not None and end is not None and end > answer.log_start_offset:
            key = f"{leader.topic_id}-{partition}"
            self._told(Told(f"{self.client.name}'s stable ListOffsets", key, ANY_EPOCH, end))

    async def read_all(self, partitions: Sequence[Partition], op: Txn) -> None:
        """From where it is up to the stable offset of each; all of it in `op`. Of what follows nobody knows how late it is."""
        self.client.follower_odds = 0.0
        for topic, partition in partitions:
            while True:
                polled = await self.poll(topic, partition)
                op.polls += polled or []
                there = self.positions[topic, partition]
                if polled is not None and there >= self.stable[topic, partition]:
                    break
                if not polled:
                    await self.client.env.clock.sleep(RETRY_PAUSE_S)
            op.positions[key_of(topic, partition)] = there


def _polled(key: str, record: Record) -> Polled:
    named = identity(record.value, record.headers).decode()
    number, value, extra = (int(part) for part in named.split("/"))
    return Polled(key, record.offset, value, number, extra)


class GroupPositions:
    """What a group has committed: a position, and in its metadata the number of the transaction that it is of."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self.client = client
        self.group = group
        self._coordinator = Coordinator(client, group, GROUP)

    async def find(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        """(position, number) of each, when it is stable: nothing of an open transaction is pending."""
        clock = self.client.env.clock
        while True:
            try:
                reply = await self._coordinator.ask(
                    ApiKey.offset_fetch,
                    OFFSET_FETCH_VERSION,
                    group_id=self.group,
                    topics=[
                        {"name": topic, "partition_indexes": [partition]}
                        for topic, partition in partitions
                    ],
                    require_stable=True,
                )
            except Trouble:
                await clock.sleep(RETRY_PAUSE_S)
                continue
            if reply.error_code is not ErrorCode.none:
                self._coordinator.forget()
                await clock.sleep(RETRY_PAUSE_S)
                continue
            answers = {
                (topic.name, each.partition_index): each
                for topic in reply.topics
                for each in topic.partitions
            }
            if all(each.error_code is ErrorCode.none for each in answers.values()):
                return {
                    place: (each.committed_offset, number_of(each.metadata))
                    for place, each in answers.items()
                }
            await clock.sleep(RETRY_PAUSE_S)

    async def observe(self, partitions: Sequence[Partition], op: Txn) -> dict[Partition, int]:
        """As `find`, and told in `op`; where nothing is committed, 0."""
        op.began_s = self.client.env.clock.steady()
        found = await self.find(partitions)
        op.ended_s = self.client.env.clock.steady()
        for (topic, partition), (position, number) in found.items():
            place = f"{self.group}|{key_of(topic, partition)}"
            op.offsets[place], op.writers[place] = position, number
        return {place: max(0, position) for place, (position, _) in found.items()}


def number_of(metadata: str | None) -> int:
    return int(metadata.rstrip(C_END)) if metadata else NO_NUMBER
