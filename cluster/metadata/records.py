"""The commands of the metadata log.

Each has a number that is never used again and a version of its own; to change one, raise its VERSION, name its level in
`levels.py`, and keep reading and writing the old one. A command carries its *preconditions* (`expects_…`): `machine.py`
compares them with the image it has when the command is applied, so a stale decision is harmless.
`codec.py` writes and reads them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self
from uuid import UUID

from ..base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from .image import NO_DISK, ConfigType, Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFormed:
    """The first command of every cluster: its name and the feature levels it starts with."""

    TYPE: ClassVar[int] = 1
    VERSION: ClassVar[int] = 1
    cluster_id: str
    features: Mapping[str, int] = field(default_factory=dict)

    def pack(self, _version: int) -> list[Any]:
        return [self.cluster_id, dict(self.features)]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        cluster_id, features = fields
        return cls(cluster_id=cluster_id, features=features)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered:
    """A broker came, in place of `expects_broker_epoch` (-1: of none). Applied, it answers the new epoch."""

    TYPE: ClassVar[int] = 2
    VERSION: ClassVar[int] = 2  # 2 names the disk
    broker_id: BrokerId
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = False
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    expects_broker_epoch: BrokerEpoch
    disk: UUID = NO_DISK
    waits_for_disk: UUID = NO_DISK

    def pack(self, version: int) -> list[Any]:
        ends = [[end.listener, end.host, end.port, end.protocol] for end in self.endpoints]
        features = {name: list(levels) for name, levels in self.features.items()}
        disks = [] if version < 2 else [self.disk.bytes, self.waits_for_disk.bytes]
        return [
            self.broker_id,
            self.incarnation_id.bytes,
            ends,
            self.rack,
            self.fenced,
            features,
            self.expects_broker_epoch,
            *disks,
        ]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        broker_id, incarnation, ends, rack, fenced, features, expects, *disks = fields
        disk, waits_for_disk = [UUID(bytes=each) for each in disks] or [NO_DISK, NO_DISK]
        return cls(
            broker_id=broker_id,
            incarnation_id=UUID(bytes=incarnation),
            endpoints=tuple(Endpoint(*end) for end in ends),
            rack=rack,
            fenced=fenced,
            features={name: (low, high) for name, (low, high) in features.items()},
            expects_broker_epoch=expects,
            disk=disk,
            waits_for_disk=waits_for_disk,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChanged:
    """A registered broker was fenced or unfenced, or began to shut down."""

    TYPE: ClassVar[int] = 3
    VERSION: ClassVar[int] = 1
    broker_id: BrokerId
    expects_broker_epoch: BrokerEpoch
    fenced: bool
    in_controlled_shutdown: bool = False

    def pack(self, _version: int) -> list[Any]:
        return [
            self.broker_id,
            self.expects_broker_epoch,
            self.fenced,
            self.in_controlled_shutdown,
        ]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        broker_id, expects, fenced, shutdown = fields
        return cls(
            broker_id=broker_id,
            expects_broker_epoch=expects,
            fenced=fenced,
            in_controlled_shutdown=shutdown,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnregistered:
    """A broker that is gone for good was taken off the list."""

    TYPE: ClassVar[int] = 4
    VERSION: ClassVar[int] = 1
    broker_id: BrokerId
    expects_broker_epoch: BrokerEpoch

    def pack(self, _version: int) -> list[Any]:
        return [self.broker_id, self.expects_broker_epoch]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        broker_id, expects = fields
        return cls(broker_id=broker_id, expects_broker_epoch=expects)


@dataclass(frozen=True, slots=True)
class NewPartition:
    """Where a new partition lives. Its ISR is those of its replicas that were alive, its leader the first of them."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId


def _pack_new(partitions: Sequence[NewPartition]) -> list[Any]:
    """Runs of equal partitions are written once: a topic of 10,000 on one node takes a few bytes."""
    runs: list[list[Any]] = []
    last: NewPartition | None = None
    for partition in partitions:
        if partition == last:
            runs[-1][0] += 1
            continue
        runs.append([1, partition.replicas, partition.isr, partition.leader])
        last = partition
    return runs


def _unpack_new(runs: list[Any]) -> tuple[NewPartition, ...]:
    partitions: list[NewPartition] = []
    for count, replicas, isr, leader in runs:
        partitions.extend([NewPartition(tuple(replicas), tuple(isr), leader)] * count)
    return tuple(partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """A topic with its partitions and its configs. Its name and id must both be free."""

    TYPE: ClassVar[int] = 5
    VERSION: ClassVar[int] = 1
    name: str
    topic_id: UUID
    partitions: tuple[NewPartition, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    def pack(self, _version: int) -> list[Any]:
        return [self.name, self.topic_id.bytes, _pack_new(self.partitions), dict(self.configs)]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        name, topic_id, runs, configs = fields
        return cls(
            name=name,
            topic_id=UUID(bytes=topic_id),
            partitions=_unpack_new(runs),
            configs=configs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """A topic is gone, with its configs."""

    TYPE: ClassVar[int] = 6
    VERSION: ClassVar[int] = 1
    topic_id: UUID

    def pack(self, _version: int) -> list[Any]:
        return [self.topic_id.bytes]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        (topic_id,) = fields
        return cls(topic_id=UUID(bytes=topic_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsCreated:
    """More partitions at the end of a topic that has `expects_count`."""

    TYPE: ClassVar[int] = 7
    VERSION: ClassVar[int] = 1
    topic_id: UUID
    expects_count: int
    partitions: tuple[NewPartition, ...]

    def pack(self, _version: int) -> list[Any]:
        return [self.topic_id.bytes, self.expects_count, _pack_new(self.partitions)]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        topic_id, count, runs = fields
        return cls(topic_id=UUID(bytes=topic_id), expects_count=count, partitions=_unpack_new(runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A partition's next state, in full. Its partition epoch becomes one more than the expected."""

    partition: int
    expects_partition_epoch: PartitionEpoch
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    offline: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsChanged:
    """Partitions of one topic have a new leader, ISR or replicas: a compare-and-set of each.

    Version 2 names the replicas whose logs failed.
    """

    TYPE: ClassVar[int] = 8
    VERSION: ClassVar[int] = 2
    topic_id: UUID
    changes: tuple[PartitionChange, ...]

    def pack(self, version: int) -> list[Any]:
        changes = [
            [
                change.partition,
                change.expects_partition_epoch,
                change.leader,
                change.leader_epoch,
                change.replicas,
                change.isr,
                change.elr,
                change.adding,
                change.removing,
                *([change.offline] if version > 1 else ()),
            ]
            for change in self.changes
        ]
        return [self.topic_id.bytes, changes]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        topic_id, changes = fields
        return cls(topic_id=UUID(bytes=topic_id), changes=tuple(map(_unpack_change, changes)))


def _unpack_change(fields: list[Any]) -> PartitionChange:
    partition, expects, leader, leader_epoch, *brokers = fields
    replicas, isr, elr, adding, removing, *offline = map(tuple, brokers)
    return PartitionChange(
        partition=partition,
        expects_partition_epoch=expects,
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=replicas,
        isr=isr,
        elr=elr,
        adding=adding,
        removing=removing,
        offline=offline[0] if offline else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsChanged:
    """Settings of one resource: name -> new value, None takes it away.

    `expects` is all that was set before, if the decision rests on it: two appends to one list can't lose each
    other, and two settings that go not together can't both be set.
    """

    TYPE: ClassVar[int] = 9
    VERSION: ClassVar[int] = 1
    resource_type: ConfigType
    name: str
    changes: Mapping[str, str | None]
    expects: Mapping[str, str] | None = None
    # Of a topic's configs: a new topic of the old one's name must not get what was meant for that.
    topic_id: UUID | None = None

    def pack(self, _version: int) -> list[Any]:
        topic_id = None if self.topic_id is None else self.topic_id.bytes
        expects = None if self.expects is None else dict(self.expects)
        return [int(self.resource_type), self.name, dict(self.changes), expects, topic_id]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        resource_type, name, changes, expects, topic_id = fields
        return cls(
            resource_type=ConfigType(resource_type),
            name=name,
            changes=changes,
            expects=expects,
            topic_id=None if topic_id is None else UUID(bytes=topic_id),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChanged:
    """A feature of the whole cluster has a new level; 0 takes it away."""

    TYPE: ClassVar[int] = 10
    VERSION: ClassVar[int] = 1
    name: str
    level: int
    expects_level: int

    def pack(self, _version: int) -> list[Any]:
        return [self.name, self.level, self.expects_level]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        name, level, expects = fields
        return cls(name=name, level=level, expects_level=expects)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAllocated:
    """A block of producer ids that this broker alone gives out from now on."""

    TYPE: ClassVar[int] = 11
    VERSION: ClassVar[int] = 1
    broker_id: BrokerId
    expects_broker_epoch: BrokerEpoch
    first_producer_id: int
    count: int

    def pack(self, _version: int) -> list[Any]:
        return [self.broker_id, self.expects_broker_epoch, self.first_producer_id, self.count]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        broker_id, expects, first, count = fields
        return cls(
            broker_id=broker_id,
            expects_broker_epoch=expects,
            first_producer_id=first,
            count=count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageExpected:
    """The batch that holds it was decided on this version of the image, and is refused on every other one."""

    TYPE: ClassVar[int] = 12
    VERSION: ClassVar[int] = 1
    version: int

    def pack(self, _version: int) -> list[Any]:
        return [self.version]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        (version,) = fields
        return cls(version=version)


# Every command there is: `codec.py` reads and writes them, `machine.py` has a rule for each.
ALL_COMMANDS = (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterFormed,
    ConfigsChanged,
    FeatureChanged,
    ImageExpected,
    PartitionsChanged,
    PartitionsCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
