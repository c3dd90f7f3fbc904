"""Watches transactions inside the nodes: what the coordinators' log decides, and what the partitions' logs say of it.

It reads the records of `__transaction_state` as they are committed, with a decoder of its own (Kafka's TransactionLogKey and
TransactionLogValue), and every marker as its leader has written it; the judge is `checkers/decisions.py`.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import BatchHeader
from fencepost.cluster.wire.reader import read_uvarint
from fencepost.cluster.wire.records import Record, read_control, read_records
from fencepost.node.broker import Broker
from fencepost.replication.partition import Partition

from ..checkers.decisions import Decisions
from ..checkers.observations import Decided, Ended, Marked, Refused
from .cluster_nodes import node_name
from .cluster_watch import ClusterWatch
from .node import SimEnv
from .parsed_log import batches_between
from .world import World

STATE_TOPIC: Final = "__transaction_state"
# TransactionState.java's ids.
STATES: Final = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
    8: "Prepared",
}
_VERSION: Final = Struct(">h")  # also the length of a string
_ID_V0: Final = Struct(">qhib")  # producer id, epoch, timeout, status
_COUNT: Final = Struct(">i")


class TransactionWatch(ClusterWatch):
    """`moments` gain `decided` and `marked`: rare faults may strike there."""

    def __init__(self, world: World, *, inside: bool = True) -> None:
        super().__init__(world, inside=inside)
        self.decisions = Decisions()
        self.seen |= {"decided": 0, "marked": 0, "deleting": 0, "refused": 0}
        self._read: dict[str, int] = {}  # of the transaction log: how far decisions are known
        self._marked: dict[str, int] = {}  # of other partitions: how far markers were looked at
        self._open: dict[str, dict[int, int]] = {}
        self._epoch: dict[str, int] = {}

    def hook(self, node_id: int, env: SimEnv, broker: Broker) -> None:
        super().hook(node_id, env, broker)
        manager: Any = broker.replicas
        told_written, told_committed = manager.on_write, manager.on_high_watermark

        def on_write(partition: Partition, error: OSError | None) -> None:
            if error is None and partition.is_leader:
                self._look_for_markers(node_id, partition)
            told_written(partition, error)

        def on_high_watermark(partition: Partition) -> None:
            # First, so that a decision is known before anybody acts on it.
            if partition.is_leader and partition.topic_partition.topic == STATE_TOPIC:
                self._look_for_decisions(node_id, partition)
            told_committed(partition)

        manager.on_write, manager.on_high_watermark = on_write, on_high_watermark

    # Decisions.

    def refused(self, seen: Refused) -> None:
        self._look_for_all_decisions()
        self.seen["refused"] += 1
        self.report(self.decisions.refused(seen))

    def ended(self, seen: Ended) -> None:
        self._look_for_all_decisions()
        self.report(self.decisions.ended(seen))

    def _look_for_all_decisions(self) -> None:
        """What no leader has told yet, since nothing was committed under it, counts as well."""
        assert self.nodes is not None, "somebody was answered before there were nodes"
        for node_id in self.nodes.up():
            for name, partition in self.nodes.brokers[node_id].replicas.partitions.items():
                if name.topic == STATE_TOPIC and partition.is_leader:
                    self._look_for_decisions(node_id, partition)

    def _look_for_decisions(self, node_id: int, partition: Partition) -> None:
        key, end = f"{partition.topic_partition}", partition.high_watermark
        position = self._read.get(key, 0)
        if end <= position:
            return
        self._read[key] = end
        for content, at, _ in self._batches_between(node_id, partition, position, end):
            for record in read_records(content, at):
                self._take(node_id, record)

    def _batches_between(
        self, node_id: int, partition: Partition, start: int, end: int
    ) -> Iterator[tuple[bytes, int, BatchHeader]]:
        find = self.world.disk(node_name(node_id)).files.find
        return batches_between(find, partition.log, start, end)

    def _take(self, node_id: int, record: Record) -> None:
        transactional_id = transactional_id_of(record)
        if transactional_id is not None and record.value is None:
            self.report(self.decisions.forget(transactional_id))
        decided = decoded(record)
        if decided is not None:
            self.report(self.decisions.see(decided))
            if decided.state.startswith("Prepare"):
                self._moment("decided", node_id)

    # Markers.

    def _look_for_markers(self, node_id: int, partition: Partition) -> None:
        name: TopicPartition = partition.topic_partition
        log = partition.log
        if name.topic == STATE_TOPIC:
            return
        key = f"{partition.topic_id}-{name.partition}"
        if partition.machine.leader_epoch < self._epoch.get(key, -1):
            return  # it does not know yet that it leads no more; what it writes will be cut off
        start = self._marked.get(key, 0)
        news = start
        if self._epoch.get(key) != partition.machine.leader_epoch:
            # Another leader: what is open is what its own log says, and new is what it has written itself.
            self._epoch[key], self._open[key] = partition.machine.leader_epoch, {}
            start, news = 0, partition.machine.epoch_start_offset
        self._marked[key] = log.log_end_offset
        running = self._open[key]
        # What was deleted may have opened what a marker ends: of that one it is asked only whether it was decided.
        start = max(start, log.log_start_offset)
        for content, at, header in self._batches_between(
            node_id, partition, start, log.log_end_offset
        ):
            if header.is_control:
                ends_one = running.pop(header.producer_id, None) is not None
                if header.base_offset >= news and not self._is_gone(partition):
                    self._see_marker(node_id, name, content, at, header, ends_one=ends_one)
            elif header.is_transactional:
                running.setdefault(header.producer_id, header.base_offset)

    def _is_gone(self, partition: Partition) -> bool:
        """Its topic was deleted, of which who leads it here has not heard: no marker in there ends anything."""
        assert self.nodes is not None, "somebody has written before there were nodes"
        image = self.nodes.image
        assert image is not None, "somebody who is up has written"
        name = partition.topic_partition
        return image.partition_by_id(partition.topic_id, name.partition) is None

    def _see_marker(
        self,
        node_id: int,
        name: TopicPartition,
        content: bytes,
        at: int,
        header: BatchHeader,
        *,
        ends_one: bool,
    ) -> None:
        marker = read_control(read_records(content, at)[0])
        assert marker is not None, "only markers are in control batches"
        seen = Marked(
            node_id,
            str(name),
            header.base_offset,
            header.producer_id,
            header.producer_epoch,
            marker.commit,
            ends_one,
        )
        self.report(self.decisions.see(seen))
        self._moment("marked", node_id)

    def deleting(self, coordinator: int) -> None:
        """Somebody is about to ask for the deletion of a topic; this one coordinates what is done in it."""
        self._moment("deleting", coordinator)


# Kafka's transaction log, read by itself.


def transactional_id_of(record: Record) -> str | None:
    """None for kinds of records that Kafka's readers skip."""
    key = record.key
    assert key is not None, "a record of the transaction log has a key"
    (kind,) = _VERSION.unpack_from(key)
    if kind != 0:
        return None
    (size,) = _VERSION.unpack_from(key, 2)
    return key[4 : 4 + size].decode()


def decoded(record: Record) -> Decided | None:
    """None for a tombstone and for kinds of records that Kafka's readers skip."""
    transactional_id, value = transactional_id_of(record), record.value
    if transactional_id is None or value is None:
        return None
    (version,) = _VERSION.unpack_from(value)
    at = 2
    producer_id, producer_epoch, _, status = _ID_V0.unpack_from(value, at)
    at += _ID_V0.size
    partitions = (
        _partitions_v0(value, at) if version == 0 else _partitions_v1(memoryview(value), at)
    )
    return Decided(transactional_id, producer_id, producer_epoch, STATES[status], tuple(partitions))


def _partitions_v0(value: bytes, at: int) -> list[str]:
    found = []
    (topics,) = _COUNT.unpack_from(value, at)
    at += 4
    for _ in range(max(0, topics)):
        (size,) = _VERSION.unpack_from(value, at)
        topic = value[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = _COUNT.unpack_from(value, at)
        at += 4
        found += [f"{topic}-{_COUNT.unpack_from(value, at + 4 * n)[0]}" for n in range(count)]
        at += 4 * count
    return found


def _partitions_v1(value: memoryview, at: int) -> list[str]:
    """Flexible: sizes are unsigned varints, one more than they say, and 0 is null; tags end each struct."""
    found = []
    topics, at = read_uvarint(value, at)
    for _ in range(max(0, topics - 1)):
        size, at = read_uvarint(value, at)
        topic = str(value[at : at + size - 1], "utf-8")
        at += size - 1
        count, at = read_uvarint(value, at)
        found += [f"{topic}-{_COUNT.unpack_from(value, at + 4 * n)[0]}" for n in range(count - 1)]
        at += 4 * (count - 1)
        tags, at = read_uvarint(value, at)
        assert tags == 0, "no version of this struct has tags"
    return found
