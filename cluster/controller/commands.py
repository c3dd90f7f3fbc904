"""What may be asked of the active controller, and what it answers.

A command is one request of a client or a broker; it is decided on the controller's image and becomes records of
the metadata log (`cluster/metadata/records.py`), or none. Answers come per item, each with Kafka's
error code and sentence: `ErrorCode.none` and no message when it was done.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import UUID

from ..base.errors import ErrorCode
from ..base.ids import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
)
from ..metadata.describe import DescribedConfig
from ..metadata.image import NO_BROKER_EPOCH, NO_DISK, NO_PARTITION_EPOCH, Endpoint

R_co = TypeVar("R_co", covariant=True)


class ControllerCommand(Generic[R_co]):
    """A command whose answer is an R: `await controller.execute(command) -> R`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """How it went with one item of a command."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


# --- topics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """-1 asks for the default. `assignments` are (partition, replicas), as the client wrote them."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult(ItemResult):
    """`configs` are the topic's settings in force, as CreateTopics shows them from version 5 on."""

    name: str | None
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[DescribedConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(ControllerCommand[list[TopicResult]]):
    """Results in the order asked; topics that were named twice come once, at the end."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCreateTopics(ControllerCommand[list[TopicResult]]):
    """Topics that somebody used and nobody made, among them the internal ones with their own settings.

    One that exists already is answered as success. Whether clients may is the caller's question
    (`auto.create.topics.enable`, authorisation).
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRef:
    """A topic by its name or by its id."""

    name: str | None = None
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(ControllerCommand[list[TopicResult]]):
    topics: tuple[TopicRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    """`count` is the new total; `assignments` hold the replicas of the new ones only."""

    name: str
    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(ControllerCommand[list[TopicResult]]):
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


# --- configs --------------------------------------------------------------------------------------


class ConfigOperation(enum.IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """`operation` is what the client sent: a number that is not a ConfigOperation is refused."""

    name: str
    operation: int = ConfigOperation.SET
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """Changes of one resource: all of them or none. `resource_type` is what the client sent."""

    resource_type: int
    name: str
    changes: tuple[ConfigChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceResult(ItemResult):
    resource_type: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs(ControllerCommand[list[ResourceResult]]):
    """IncrementalAlterConfigs; with `replace_all` the older AlterConfigs, which unsets what it does not name."""

    resources: tuple[ResourceChange, ...]
    validate_only: bool = False
    replace_all: bool = False


# --- the cluster and its brokers ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FormCluster(ControllerCommand[str]):
    """Answers the cluster's id. A quorum without one gets the given id, or one that is made up."""

    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered(ItemResult):
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplica:
    """A partition whose log on this broker failed, or could not be opened: a restart may bring it back.

    `may_lack`: something that it had acknowledged may be gone from it.
    """

    topic_id: UUID
    partition: int
    may_lack: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsOfTopic:
    topic_id: UUID
    partitions: tuple[int, ...]


def logs_of_topics(logs: Iterable[tuple[UUID, int]]) -> tuple[LogsOfTopic, ...]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in logs:
        by_topic.setdefault(topic_id, []).append(partition)
    return tuple(
        LogsOfTopic(topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker(ControllerCommand[Registered]):
    """A broker starts. Unless it asks to stay fenced until its first heartbeat, it leads again from here on.

    `lacking`: where something that this broker had acknowledged may be missing, None: in any of its logs. It leaves
    each of their ISRs that has another member. Nothing is missing where it stopped cleanly, was killed on the boot
    that is still running, or had synced what it acknowledged. All of its logs are open but those of `failed`.
    `disk` is the id of its folder: with another one than before it has nothing.
    """

    broker_id: BrokerId
    cluster_id: str
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    fenced: bool = False
    lacking: tuple[LogsOfTopic, ...] | None = ()
    disk: UUID = NO_DISK
    failed: tuple[FailedReplica, ...] = ()

    def may_lack(self) -> Callable[[UUID, int], bool]:
        """Whether something may be missing in the log of this partition."""
        if self.lacking is None:
            return lambda _topic_id, _partition: True
        named = {(each.topic_id, index) for each in self.lacking for index in each.partitions}
        return lambda topic_id, partition: (topic_id, partition) in named


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult(ItemResult):
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(ControllerCommand[HeartbeatResult]):
    """`image_version` is how far the broker has followed the metadata log.

    `failed` are its logs that can't be used, as far as that image does not say so (Kafka: OfflineLogDirs).
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    image_version: int
    want_fence: bool = False
    want_shut_down: bool = False
    failed: tuple[FailedReplica, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDisk(ControllerCommand[ItemResult]):
    """Whether a broker's disk has no room for records. No field of the heartbeat: a controller of an older build refuses this
    one, and goes on to hear heartbeats."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(ControllerCommand[ItemResult]):
    """A broker is gone for good. Its replicas stay where they are until they are moved."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock(ItemResult):
    first_producer_id: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds(ControllerCommand[ProducerIdBlock]):
    """A block of ids that no other broker will ever get."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


# --- partitions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMember:
    broker_id: BrokerId
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH  # -1: not known, not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A leader's wish for its partition's ISR, and the epochs it saw."""

    topic_id: UUID
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrResult(ItemResult):
    """The partition's state that is now in force, when there was no error."""

    topic_id: UUID
    partition: int
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    isr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition(ControllerCommand[list[IsrResult]]):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[IsrChange, ...]


class ElectionType(enum.IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult(ItemResult):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders(ControllerCommand[list[ElectionResult]]):
    """`partitions` None stands for all of them, of which only those that changed are answered."""

    election: ElectionType
    partitions: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """Where a partition's replicas shall be, the preferred leader first. None cancels the move under way."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentResult(ItemResult):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReassignments(ControllerCommand[list[ReassignmentResult]]):
    """Results in the order asked: a move that is begun, not one that is done."""

    partitions: tuple[Reassignment, ...]
    allow_factor_change: bool = True


# --- features -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """`upgrade_type` is what the client sent: a number that is not an UpgradeType is refused."""

    name: str
    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures(ControllerCommand[ItemResult]):
    """All of the updates or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False
