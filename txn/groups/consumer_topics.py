"""What a consumer group's coordinator sees of the cluster's topics.

The machine asks for as little as `Topics`, so that a test can say what exists; on a node it is the image.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import BrokerState, ClusterImage, ImageDelta, TopicState

from .consumer_hash import HashedTopic, group_hash, topic_hash

Placement = object  # only ever compared


class PlacedTopic(HashedTopic, Protocol):
    def placement(self) -> Placement:
        """Cheap, and another than before whenever the racks of a partition's replicas are."""


class Topics(Protocol):
    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""

    def by_name(self, name: str) -> PlacedTopic | None: ...

    def by_id(self, topic_id: UUID) -> PlacedTopic | None: ...

    def names(self) -> Sequence[str]:
        """All topics there are, sorted."""


@dataclass(frozen=True, slots=True)
class ImageTopic:
    """One topic of the image, with the racks of its replicas looked up."""

    state: TopicState
    brokers: Mapping[BrokerId, BrokerState]

    @property
    def topic_id(self) -> UUID:
        return self.state.topic_id

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def partition_count(self) -> int:
        return len(self.state.partitions)

    def racks(self, partition: int) -> Sequence[str]:
        found = (self.brokers.get(broker) for broker in self.state.partitions[partition].replicas)
        return [broker.rack for broker in found if broker is not None and broker.rack is not None]

    def placement(self) -> Placement:
        racks = {
            id_: broker.rack for id_, broker in self.brokers.items() if broker.rack is not None
        }
        return [partition.replicas for partition in self.state.partitions], racks


class ImageTopics:
    """The image as it is at the moment of asking."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image

    @property
    def version(self) -> int:
        return self.image.version

    def by_name(self, name: str) -> ImageTopic | None:
        state = self.image.topics.get(name)
        return None if state is None else ImageTopic(state, self.image.brokers)

    def by_id(self, topic_id: UUID) -> ImageTopic | None:
        state = self.image.topics_by_id.get(topic_id)
        return None if state is None else ImageTopic(state, self.image.brokers)

    def names(self) -> Sequence[str]:
        return sorted(self.image.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """A step for the machine: these topics were created, deleted or given partitions or replicas."""

    names: frozenset[str]
    any_created: bool


def topics_changed(delta: ImageDelta) -> TopicsChanged | None:
    """What a change of the image means for groups; None when it means nothing."""
    names = {topic.name for topic in delta.topics_created}
    names |= {topic.name for topic in delta.topics_deleted}
    names |= {topic.name for topic, _ in delta.partitions_changed}
    if not names:
        return None
    return TopicsChanged(names=frozenset(names), any_created=bool(delta.topics_created))


class _Known(NamedTuple):
    topic_id: UUID
    partition_count: int
    placement: Placement
    number: int


class TopicHashes:
    """The hash of each topic that some group reads, computed once for each change of what is hashed.

    INVARIANT  a hash is that of the topic as it was when `changed` last named it, or as it is now.
    PREVENTS   a leader that moves, or an ISR that shrinks, hashing 10,000 partitions in Python again (170 ms).
    PROVED BY  tests/txn/test_consumer_topics.py::test_a_change_of_leader_or_isr_keeps_the_hash
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[str, _Known] = {}
        # Of those known, whose partitions changed in some way: mostly in none that is hashed.
        self._changed: set[str] = set()

    def changed(self, names: Iterable[str]) -> None:
        for name in names:
            if self._topics.by_name(name) is None:
                self._known.pop(name, None)
                self._changed.discard(name)
            elif name in self._known:
                self._changed.add(name)

    def of(self, names: Iterable[str]) -> int:
        """The hash of all of `names` together; what does not exist is left out."""
        return group_hash(
            (name, number) for name in names if (number := self._one(name)) is not None
        )

    def _one(self, name: str) -> int | None:
        topic = self._topics.by_name(name)
        if topic is None:
            return None
        known = self._known.get(name)
        # A change of racks shows only through `changed`, as in Kafka; these two are cheap to compare.
        same = known is not None and known[:2] == (topic.topic_id, topic.partition_count)
        if known is not None and same and name not in self._changed:
            return known.number
        placement = topic.placement()
        if known is None or not same or known.placement != placement:
            number = topic_hash(topic)
            known = _Known(topic.topic_id, topic.partition_count, placement, number)
            self._known[name] = known
        self._changed.discard(name)
        return known.number
