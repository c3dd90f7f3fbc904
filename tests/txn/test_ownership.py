import struct
from uuid import UUID

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicState
from fencepost.txn.runtime.ownership import Ownership, java_hash, partition_for
from hypothesis import given
from hypothesis import strategies as st

# What a JVM says: String.hashCode, and org.apache.kafka.common.utils.Utils.abs of it modulo 50.
JAVA = [
    ("", 0, 0),
    ("a", 97, 47),
    ("billing", -109829509, 9),
    ("polygenelubricants", -2147483648, 0),  # the one number without a positive twin
    ("grüße", 98768023, 23),
    ("𝄞 clef", 1424431552, 2),  # two UTF-16 units
]


@pytest.mark.parametrize(("key", "value", "partition"), JAVA)
def test_keys_are_put_where_java_puts_them(key, value, partition) -> None:
    assert (java_hash(key), partition_for(key, 50)) == (value, partition)


@given(st.text())
def test_the_hash_is_the_plain_polynomial(key) -> None:
    data = key.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(data) // 2}H", data)
    total = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units))
    assert java_hash(key) % (1 << 32) == total % (1 << 32)
    assert -(1 << 31) <= java_hash(key) < 1 << 31


class Watched:
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.image = ClusterImage()
        self.ownership = Ownership(
            "offsets",
            BrokerId(1),
            elected=lambda partition: self.events.append(("elected", partition)),
            resigned=lambda partition: self.events.append(("resigned", partition)),
        )

    def lead(self, leaders: dict[int, int], epoch: int = 0, topic: str = "offsets") -> None:
        delta = ImageDelta(self.image)
        state = self.image.topics.setdefault(topic, TopicState(topic, UUID(int=1), []))
        for index, leader in leaders.items():
            partition = PartitionState(
                index, BrokerId(leader), LeaderEpoch(epoch), PartitionEpoch(0), (), ()
            )
            state.partitions[index : index + 1] = [partition]
            delta.partitions_changed.append((state, partition))
        self.ownership.on_image(delta)

    def delete(self) -> None:
        delta = ImageDelta(self.image)
        delta.topics_deleted.append(self.image.topics.pop("offsets"))
        self.ownership.on_image(delta)


def test_partitions_become_ours_and_cease_to_be_as_their_leaders_change() -> None:
    watched = Watched()
    watched.lead({0: 1, 1: 2})
    watched.lead({0: 1}, epoch=1)
    watched.lead({0: 2, 1: 1}, epoch=2)
    watched.lead({0: 1}, topic="other")
    assert watched.events == [("elected", 0), ("resigned", 0), ("elected", 1)]


def test_when_the_topic_is_deleted_nothing_of_it_is_ours() -> None:
    watched = Watched()
    watched.lead({0: 1, 1: 1})
    watched.delete()
    assert watched.events[2:] == [("resigned", 0), ("resigned", 1)]
    assert (
        watched.ownership.coordinator_of(watched.image, "g") is ErrorCode.coordinator_not_available
    )


def test_the_coordinator_of_a_key_leads_its_partition() -> None:
    watched = Watched()
    watched.lead({0: 1, 1: 2, 2: -1})
    found = {key: watched.ownership.coordinator_of(watched.image, key) for key in ("a", "b", "c")}
    assert found == {"a": 2, "b": ErrorCode.coordinator_not_available, "c": 1}
