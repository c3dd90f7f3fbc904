"""The commands of the metadata log, and how they are written.

INVARIANT  what any released version wrote, every later one reads; what a node can't read ends it with a sentence.
PREVENTS   a new node's command that an old node of the same quorum skips: their images would part in silence.
PROVED BY  tests/cluster/metadata/test_records.py::test_an_unknown_command_is_refused_by_name

One entry of the quorum's log is a *batch*: commands that happen together or not at all. Each command has a
number that is never used again and a version of its own; to change one, raise its VERSION, keep reading the
old one in `unpack`. A command carries its *preconditions* (`expects_…`): `machine.py` compares them with the image
it has when the command is applied, so a stale decision is harmless.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self
from uuid import UUID

import msgpack

from ..base.errors import Outcome, Trouble
from ..base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from .image import ConfigType, Endpoint

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024  # of one entry; 10,000 changed partitions take under 1 MiB


class CommandUnreadable(Trouble):
    """A command of the log can't be read here: it is damaged, or written by a later version."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Outcome.REFUSED)


class Command(Protocol):
    """What every command of the log has."""

    TYPE: ClassVar[int]
    VERSION: ClassVar[int]

    def pack(self) -> list[Any]: ...

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFormed:
    """The first command of every cluster: its name and the feature levels it starts with."""

    TYPE: ClassVar[int] = 1
    VERSION: ClassVar[int] = 1
    cluster_id: str
    features: Mapping[str, int] = field(default_factory=dict)

    def pack(self) -> list[Any]:
        return [self.cluster_id, dict(self.features)]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        cluster_id, features = fields
        return cls(cluster_id=cluster_id, features=features)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered:
    """A broker came (again). Applied, it answers the broker's new epoch.

    `expects_broker_epoch` is the epoch that this one takes over from, -1 when there was none.
    """

    TYPE: ClassVar[int] = 2
    VERSION: ClassVar[int] = 1
    broker_id: BrokerId
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = False
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    expects_broker_epoch: BrokerEpoch

    def pack(self) -> list[Any]:
        ends = [[end.listener, end.host, end.port, end.protocol] for end in self.endpoints]
        features = {name: list(levels) for name, levels in self.features.items()}
        return [
            self.broker_id,
            self.incarnation_id.bytes,
            ends,
            self.rack,
            self.fenced,
            features,
            self.expects_broker_epoch,
        ]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        broker_id, incarnation, ends, rack, fenced, features, expects = fields
        return cls(
            broker_id=broker_id,
            incarnation_id=UUID(bytes=incarnation),
            endpoints=tuple(Endpoint(*end) for end in ends),
            rack=rack,
            fenced=fenced,
            features={name: (low, high) for name, (low, high) in features.items()},
            expects_broker_epoch=expects,
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

    def pack(self) -> list[Any]:
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

    def pack(self) -> list[Any]:
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

    def pack(self) -> list[Any]:
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

    def pack(self) -> list[Any]:
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

    def pack(self) -> list[Any]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsChanged:
    """Partitions of one topic have a new leader, ISR or replicas: a compare-and-set of each."""

    TYPE: ClassVar[int] = 8
    VERSION: ClassVar[int] = 1
    topic_id: UUID
    changes: tuple[PartitionChange, ...]

    def pack(self) -> list[Any]:
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
            ]
            for change in self.changes
        ]
        return [self.topic_id.bytes, changes]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        topic_id, changes = fields
        return cls(
            topic_id=UUID(bytes=topic_id),
            changes=tuple(
                PartitionChange(
                    partition=partition,
                    expects_partition_epoch=expects,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    replicas=tuple(replicas),
                    isr=tuple(isr),
                    elr=tuple(elr),
                    adding=tuple(adding),
                    removing=tuple(removing),
                )
                for (
                    partition,
                    expects,
                    leader,
                    leader_epoch,
                    replicas,
                    isr,
                    elr,
                    adding,
                    removing,
                ) in changes
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsChanged:
    """Settings of one resource: name -> new value, None takes it away.

    `expects` holds the value before (None: not set) of every name that was read to decide, so that two
    appends to one list can't lose each other.
    """

    TYPE: ClassVar[int] = 9
    VERSION: ClassVar[int] = 1
    resource_type: ConfigType
    name: str
    changes: Mapping[str, str | None]
    expects: Mapping[str, str | None] = field(default_factory=dict)

    def pack(self) -> list[Any]:
        return [int(self.resource_type), self.name, dict(self.changes), dict(self.expects)]

    @classmethod
    def unpack(cls, _version: int, fields: list[Any]) -> Self:
        resource_type, name, changes, expects = fields
        return cls(
            resource_type=ConfigType(resource_type), name=name, changes=changes, expects=expects
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChanged:
    """A feature of the whole cluster has a new level; 0 takes it away."""

    TYPE: ClassVar[int] = 10
    VERSION: ClassVar[int] = 1
    name: str
    level: int
    expects_level: int

    def pack(self) -> list[Any]:
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

    def pack(self) -> list[Any]:
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


COMMANDS: Final[Mapping[int, type[Command]]] = {
    command.TYPE: command
    for command in (
        ClusterFormed,
        BrokerRegistered,
        BrokerChanged,
        BrokerUnregistered,
        TopicCreated,
        TopicDeleted,
        PartitionsCreated,
        PartitionsChanged,
        ConfigsChanged,
        FeatureChanged,
        ProducerIdsAllocated,
    )
}


def encode(commands: Sequence[Command]) -> bytes:
    """One entry of the log: the commands of a batch, each as [number, version, fields]."""
    packed = [[command.TYPE, command.VERSION, command.pack()] for command in commands]
    return bytes(msgpack.packb(packed, use_bin_type=True))


def decode(entry: bytes) -> list[Command]:
    """The commands of an entry. CommandUnreadable names what this version of the code can't read."""
    try:
        packed = msgpack.unpackb(entry, raw=False, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException) as trouble:
        raise CommandUnreadable(f"A metadata command is not msgpack: {trouble}.") from trouble
    if not isinstance(packed, list):
        raise CommandUnreadable(f"A metadata entry is a {type(packed).__name__}, not a list.")
    return [_decode_one(item) for item in packed]


def _decode_one(item: Any) -> Command:
    match item:
        case [int(number), int(version), list(fields)]:
            pass
        case _:
            raise CommandUnreadable("A metadata command is not [number, version, fields].")
    command = COMMANDS.get(number)
    if command is None:
        raise CommandUnreadable(
            f"Metadata command {number} is not known to this version of Fencepost. A newer version"
            " wrote it: start this node with at least that version."
        )
    if not 1 <= version <= command.VERSION:
        raise CommandUnreadable(
            f"Metadata command {number} ({command.__name__}) has version {version}; this version of"
            f" Fencepost reads 1 to {command.VERSION}. Start this node with a newer one."
        )
    try:
        return command.unpack(version, fields)
    except (ValueError, TypeError, AttributeError) as trouble:
        raise CommandUnreadable(
            f"Metadata command {number} ({command.__name__}, version {version}) is damaged:"
            f" {trouble}."
        ) from trouble
