"""What the whole cluster agrees on, as one node sees it after the last command it applied.

INVARIANT  an image changes only between two turns of the loop, by one whole command at a time.
PREVENTS   a handler that reads a topic of one version and its partitions of another.
PROVED BY  tests/cluster/metadata/test_metadata_machine.py::test_a_refused_batch_changes_nothing

Read it freely, never write to it: `machine.py` alone does. `PartitionState`, `BrokerState` and `Endpoint`
never change, they are replaced, so that one that was kept across an `await` stays what it was.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from ..base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition

NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
NO_DISK: Final = UUID(int=0)  # not named by the build that registered it, or none
NO_PARTITION_EPOCH: Final = PartitionEpoch(-1)
BROKER_DEFAULT: Final = ""  # the name of the config resource that stands for all brokers


class ConfigType(enum.IntEnum):
    """Kafka's ConfigResource.Type: what a set of dynamic configs belongs to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens: `protocol` is Kafka's PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    listener: str
    host: str
    port: int
    protocol: str


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One registered broker. Its epoch is the version of the image that registered it."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    disk: UUID = NO_DISK  # its folder's id
    waits_for_disk: UUID = NO_DISK  # another one, which has the last copy of something

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition: who leads it in which epoch, and who has what was committed."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    offline: tuple[
        BrokerId, ...
    ] = ()  # replicas whose logs failed: they lead nothing until a restart

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def original_replicas(self) -> tuple[BrokerId, ...]:
        """Without those that a move is still adding: what a cancelled move goes back to."""
        if not self.adding:
            return self.replicas
        return tuple(each for each in self.replicas if each not in self.adding)


@dataclass(slots=True, eq=False)
class TopicState:
    """One topic. `partitions[i]` is partition i; there are no holes."""

    name: str
    topic_id: UUID
    partitions: list[PartitionState]


class ClusterImage:
    """The state that the metadata quorum replicates; equal on every node at equal `version`."""

    __slots__ = (
        "brokers",
        "cluster_id",
        "configs",
        "controller_id",
        "features",
        "next_producer_id",
        "topics",
        "topics_by_id",
        "version",
    )

    def __init__(self) -> None:
        self.cluster_id: str = ""
        self.version: int = 0  # how many commands were accepted: Kafka's metadata offset
        self.brokers: dict[BrokerId, BrokerState] = {}
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[UUID, TopicState] = {}
        self.configs: dict[tuple[ConfigType, str], dict[str, str]] = {}  # only what was set
        self.features: dict[str, int] = {}
        self.next_producer_id: int = 0
        # Who leads the quorum, as this node knows it. Not replicated: the quorum's shell keeps it.
        self.controller_id: BrokerId | None = None

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self.topics.get(topic)
        if state is None or not 0 <= index < len(state.partitions):
            return None
        return state.partitions[index]

    def partition_by_id(self, topic_id: UUID, index: int) -> PartitionState | None:
        state = self.topics_by_id.get(topic_id)
        if state is None or not 0 <= index < len(state.partitions):
            return None
        return state.partitions[index]

    def config(self, resource_type: ConfigType, name: str) -> Mapping[str, str]:
        """What was set on one resource; for all brokers the name is `BROKER_DEFAULT`."""
        return self.configs.get((resource_type, name), _NOTHING_SET)

    def alive_brokers(self) -> list[BrokerState]:
        """Registered and not fenced, by id."""
        return [self.brokers[id_] for id_ in sorted(self.brokers) if not self.brokers[id_].fenced]

    def partitions_of(self, broker_id: BrokerId) -> Iterator[tuple[TopicState, PartitionState]]:
        """All partitions with a replica on this broker, topics by name."""
        for name in sorted(self.topics):
            topic = self.topics[name]
            for partition in topic.partitions:
                if broker_id in partition.replicas:
                    yield topic, partition

    def topic_partitions(self) -> Iterator[TopicPartition]:
        for name in sorted(self.topics):
            for index in range(len(self.topics[name].partitions)):
                yield TopicPartition(name, index)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())


_NOTHING_SET: Final[Mapping[str, str]] = {}


class ImageDelta:
    """What one applied command changed. `image` already holds the change.

    A created topic is in `topics_created` and its partitions in `partitions_changed`; a deleted one is in
    `topics_deleted` (as it was at last) and its partitions nowhere else.
    """

    __slots__ = (
        "brokers_changed",
        "configs_changed",
        "features_changed",
        "image",
        "partitions_changed",
        "topics_created",
        "topics_deleted",
    )

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.topics_created: list[TopicState] = []
        self.topics_deleted: list[TopicState] = []
        self.partitions_changed: list[tuple[TopicState, PartitionState]] = []
        self.configs_changed: list[tuple[ConfigType, str]] = []
        self.brokers_changed: list[BrokerId] = []
        self.features_changed: list[str] = []

    @classmethod
    def everything(cls, image: ClusterImage) -> "ImageDelta":
        """The delta from an empty image: what a listener gets when a whole snapshot was loaded."""
        delta = cls(image)
        for name in sorted(image.topics):
            topic = image.topics[name]
            delta.topics_created.append(topic)
            delta.partitions_changed.extend((topic, partition) for partition in topic.partitions)
        delta.configs_changed = sorted(image.configs)
        delta.brokers_changed = sorted(image.brokers)
        delta.features_changed = sorted(image.features)
        return delta

    @classmethod
    def since(cls, image: ClusterImage, known: Iterable[TopicState]) -> "ImageDelta":
        """The same for who knew these topics, and has not listened meanwhile: of what was taken away the image says nothing."""
        delta = cls.everything(image)
        gone = {each.topic_id: each for each in known if each.topic_id not in image.topics_by_id}
        delta.topics_deleted = list(gone.values())
        topics = ((ConfigType.TOPIC, name) for name in image.topics)
        all_brokers = (ConfigType.BROKER, BROKER_DEFAULT)
        delta.configs_changed = sorted({*image.configs, *topics, all_brokers})
        return delta


class ImageListener(Protocol):
    """Whoever must follow the image. Called on the loop, after each applied command, in order."""

    def on_image(self, delta: ImageDelta) -> None: ...
