from uuid import UUID

import msgpack
import pytest
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta, PartitionState
from fencepost.cluster.metadata.machine import MetadataMachine
from fencepost.cluster.metadata.records import PartitionsChanged, TopicDeleted
from fencepost.cluster.metadata.snapshot import SnapshotUnreadable, read_snapshot
from hypothesis import given
from hypothesis import strategies as st
from support.metadata_commands import LEDGER, ORDERS, change, created, registered


@given(st.binary(max_size=64))
def test_garbage_is_no_snapshot_and_changes_nothing(garbage: bytes) -> None:
    image = ClusterImage()
    with pytest.raises(SnapshotUnreadable):
        read_snapshot(garbage, image)
    assert image.version == 0


def test_a_later_snapshot_is_refused_by_its_version() -> None:
    with pytest.raises(SnapshotUnreadable, match="has version 9; this version of Fencepost reads"):
        read_snapshot(msgpack.packb([9, []]), ClusterImage())


class Follower:
    def __init__(self) -> None:
        self.deltas: list[ImageDelta] = []

    def on_image(self, delta: ImageDelta) -> None:
        self.deltas.append(delta)


def test_a_restored_machine_tells_its_listeners_what_differs() -> None:
    """A follower was given a snapshot: what was deleted and changed meanwhile must not stay as it was."""
    leader, follower, listener = MetadataMachine(), MetadataMachine(), Follower()
    for machine in (leader, follower):
        machine.apply(encode([registered()]))
        machine.apply(encode([created()]))
        machine.apply(encode([created("gone", LEDGER)]))
    leader.apply(encode([PartitionsChanged(topic_id=ORDERS, changes=(change(partition=1),))]))
    leader.apply(encode([TopicDeleted(topic_id=LEDGER)]))
    follower.listeners.append(listener)
    follower.restore(leader.snapshot())
    (delta,) = listener.deltas
    assert [topic.name for topic in delta.topics_deleted] == ["gone"]
    changed = [(topic.name, partition.partition) for topic, partition in delta.partitions_changed]
    assert changed == [("orders", 1)]
    assert delta.topics_created == []
    assert delta.brokers_changed == []


def test_ten_thousand_partitions_are_written_and_read_in_well_under_a_second() -> None:
    machine = MetadataMachine()
    machine.apply(encode([created(count=10_000)]))
    lead_again = tuple(change(partition=index) for index in range(0, 10_000, 2))
    machine.apply(encode([PartitionsChanged(topic_id=ORDERS, changes=lead_again)]))
    snapshot = machine.snapshot()
    assert len(snapshot) < 250_000
    again = MetadataMachine()
    again.restore(snapshot)
    assert again.image.partition_count() == 10_000
    assert again.snapshot() == snapshot


def test_a_snapshot_of_the_first_version_is_still_read() -> None:
    """It knew of no replicas whose logs failed."""
    topic = ["orders", UUID(int=1).bytes, [[2, 1, 5, 7, [1, 2], [1], [2], [], []]]]
    body = ["c", 9, [], [topic], [], {}, 0]
    image = ClusterImage()
    read_snapshot(msgpack.packb([1, body]), image)
    state = image.partition("orders", 1)
    assert state == PartitionState(1, 1, 5, 7, (1, 2), (1,), (2,))
