"""Which partitions of a coordinator's topic this node leads, and which partition a key belongs to.

INVARIANT  a key belongs to the partition that Kafka would put it in.
PREVENTS   two nodes coordinating one group, or a group that can't be found after a move from Kafka.
PROVED BY  tests/txn/test_ownership.py::test_keys_are_put_where_java_puts_them
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, BrokerId
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta

KEPT_CHARS_MAX: Final = 256


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's Utils.abs: the one number that has no positive twin counts as 0."""
    value = _kept_hash(key) if len(key) <= KEPT_CHARS_MAX else java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


# Whoever is asked about is soon asked about again, several times in a transaction; 3 µs for twenty characters otherwise.
_kept_hash = lru_cache(maxsize=10_000)(java_hash)


class _Term(NamedTuple):
    topic_id: UUID
    leader_epoch: int

    def goes_on(self, known: "_Term") -> bool:
        """Whether nobody else can have led in between: each leader, also none, raises the epoch. A snapshot of the
        metadata may tell us of our third term without the second, which was another node's."""
        return self.topic_id == known.topic_id and 0 <= self.leader_epoch - known.leader_epoch <= 1


class Ownership:
    """Follows the image; says when a partition became ours and when it ceased to be."""

    def __init__(
        self,
        topic: str,
        node_id: BrokerId,
        *,
        elected: Callable[[int], None],
        resigned: Callable[[int], None],
    ) -> None:
        self.topic = topic
        self._node_id = node_id
        self._elected = elected
        self._resigned = resigned
        self._owned: dict[int, _Term] = {}

    def on_image(self, delta: ImageDelta) -> None:
        if any(topic.name == self.topic for topic in delta.topics_deleted):
            for partition in sorted(self._owned):
                self._give_up(partition)
        for topic, state in delta.partitions_changed:
            if topic.name != self.topic:
                continue
            partition = state.partition
            is_ours = state.leader == self._node_id
            term = _Term(topic.topic_id, state.leader_epoch)
            known = self._owned.get(partition)
            if known is not None and not (is_ours and term.goes_on(known)):
                self._give_up(partition)
            if is_ours:
                self._owned[partition] = term
                if known is None or not term.goes_on(known):
                    self._elected(partition)

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    def partition_of(self, image: ClusterImage, key: str) -> int | None:
        """None while there is no such topic."""
        topic = image.topics.get(self.topic)
        return None if topic is None else partition_for(key, len(topic.partitions))

    def coordinator_of(self, image: ClusterImage, key: str) -> BrokerId | ErrorCode:
        partition = self.partition_of(image, key)
        state = None if partition is None else image.partition(self.topic, partition)
        if state is None or state.leader == NO_LEADER:
            return ErrorCode.coordinator_not_available
        return state.leader

    def _give_up(self, partition: int) -> None:
        if partition in self._owned:
            del self._owned[partition]
            self._resigned(partition)
