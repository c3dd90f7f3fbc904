"""The image as bytes, so that the log before it can be dropped.

Its version is the level that it is written at (`levels.py`), so that whoever is registered can be sent it: to add a field, raise
the level, leave the field out below it, and read the older ones with its empty value. The checksum and the file are the quorum's business.
"""

from typing import Any
from uuid import UUID

import msgpack

from ..base.errors import Outcome, Trouble
from ..base.ids import BrokerId
from . import levels
from .image import (
    NO_DISK,
    BrokerState,
    ClusterImage,
    ConfigType,
    Endpoint,
    ImageDelta,
    PartitionState,
    TopicState,
)


class SnapshotUnreadable(Trouble):
    """A snapshot is damaged, or of a later version."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Outcome.REFUSED)


def write_snapshot(image: ClusterImage) -> bytes:
    """Sorted throughout: nodes whose images are equal write equal bytes."""
    version = _version_of(image)
    body = [
        image.cluster_id,
        image.version,
        [_pack_broker(image.brokers[id_], version) for id_ in sorted(image.brokers)],
        [_pack_topic(image.topics[name], version) for name in sorted(image.topics)],
        [[*key, dict(sorted(image.configs[key].items()))] for key in sorted(image.configs)],
        dict(sorted(image.features.items())),
        image.next_producer_id,
    ]
    return bytes(msgpack.packb([version, body], use_bin_type=True))


def _version_of(image: ClusterImage) -> int:
    """The level at which it is written. Marks that are in the log already are kept, as `levels.version_for` keeps them."""
    level = levels.level_of(image)
    if level < levels.FAILED_LOGS and any(
        each.offline for topic in image.topics.values() for each in topic.partitions
    ):
        return levels.FAILED_LOGS
    return level


def read_snapshot(snapshot: bytes, image: ClusterImage) -> ImageDelta:
    """Make `image` that of the snapshot; the delta is what differs from what it was."""
    return take_up(read_image(snapshot), image)


def read_image(snapshot: bytes) -> ClusterImage:
    """SnapshotUnreadable: a person has to read it with another version, or it is none."""
    try:
        version, body = msgpack.unpackb(snapshot, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as trouble:
        raise SnapshotUnreadable(f"A metadata snapshot is not one: {trouble}.") from trouble
    if version not in range(levels.OLDEST, levels.reads() + 1):
        raise SnapshotUnreadable(
            f"A metadata snapshot has version {version}; this version of Fencepost reads"
            f" {levels.OLDEST} to {levels.reads()}. Start this node with the version that wrote it, or a later one."
        )
    try:
        return _unpack(body)
    except (ValueError, TypeError, AttributeError, LookupError) as trouble:
        raise SnapshotUnreadable(f"A metadata snapshot is damaged: {trouble}.") from trouble


def take_up(new: ClusterImage, image: ClusterImage) -> ImageDelta:
    """Make `image` what `new` is; the delta is what differs from what it was."""
    delta = _difference(image, new)
    for name in ("cluster_id", "version", "brokers", "topics", "topics_by_id", "configs"):
        setattr(image, name, getattr(new, name))
    image.features = new.features
    image.next_producer_id = new.next_producer_id
    return delta


def _pack_broker(broker: BrokerState, version: int) -> list[Any]:
    disks = [broker.disk.bytes, broker.waits_for_disk.bytes]
    return [
        broker.broker_id,
        broker.broker_epoch,
        broker.incarnation_id.bytes,
        [[end.listener, end.host, end.port, end.protocol] for end in broker.endpoints],
        broker.rack,
        broker.fenced,
        broker.in_controlled_shutdown,
        {name: list(broker.features[name]) for name in sorted(broker.features)},
        *(disks if version >= levels.DISKS else ()),
    ]


def _unpack_broker(fields: list[Any]) -> BrokerState:
    id_, epoch, incarnation, ends, rack, fenced, shutdown, features, *disks = fields
    disk, waits_for_disk = [UUID(bytes=each) for each in disks] or [NO_DISK, NO_DISK]
    return BrokerState(
        broker_id=id_,
        broker_epoch=epoch,
        incarnation_id=UUID(bytes=incarnation),
        endpoints=tuple(Endpoint(*end) for end in ends),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=shutdown,
        features={name: (low, high) for name, (low, high) in features.items()},
        disk=disk,
        waits_for_disk=waits_for_disk,
    )


def _pack_topic(topic: TopicState, version: int) -> list[Any]:
    """Neighbours that differ in their number alone are written once, with their count."""
    runs: list[list[Any]] = []
    last: tuple[Any, ...] | None = None
    for each in topic.partitions:
        state = (
            each.leader,
            each.leader_epoch,
            each.partition_epoch,
            each.replicas,
            each.isr,
            each.elr,
            each.adding,
            each.removing,
            *((each.offline,) if version >= levels.FAILED_LOGS else ()),
        )
        if state == last:
            runs[-1][0] += 1
            continue
        runs.append([1, *state])
        last = state
    return [topic.name, topic.topic_id.bytes, runs]


def _unpack_topic(fields: list[Any]) -> TopicState:
    name, topic_id, runs = fields
    partitions: list[PartitionState] = []
    for count, leader, leader_epoch, partition_epoch, *brokers in runs:
        replicas, isr, elr, adding, removing, *failed = (tuple(each) for each in brokers)
        offline = failed[0] if failed else ()
        for _ in range(count):
            partitions.append(
                PartitionState(
                    len(partitions),
                    leader,
                    leader_epoch,
                    partition_epoch,
                    replicas,
                    isr,
                    elr,
                    adding,
                    removing,
                    offline,
                )
            )
    return TopicState(name, UUID(bytes=topic_id), partitions)


def _unpack(body: list[Any]) -> ClusterImage:
    new = ClusterImage()
    new.cluster_id, new.version, brokers, topics, configs, new.features, next_id = body
    new.next_producer_id = next_id
    new.brokers = {BrokerId(fields[0]): _unpack_broker(fields) for fields in brokers}
    new.topics = {fields[0]: _unpack_topic(fields) for fields in topics}
    new.topics_by_id = {topic.topic_id: topic for topic in new.topics.values()}
    new.configs = {(ConfigType(kind), name): dict(values) for kind, name, values in configs}
    return new


def _difference(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    delta = ImageDelta(old)  # which becomes the new one
    for topic_id in sorted(old.topics_by_id.keys() - new.topics_by_id.keys()):
        delta.topics_deleted.append(old.topics_by_id[topic_id])
    for name in sorted(new.topics):
        topic = new.topics[name]
        before = old.topics_by_id.get(topic.topic_id)
        known = [] if before is None else before.partitions
        if before is None:
            delta.topics_created.append(topic)
        for index, partition in enumerate(topic.partitions):
            if index >= len(known) or known[index] != partition:
                delta.partitions_changed.append((topic, partition))
    delta.configs_changed = sorted(
        key
        for key in old.configs.keys() | new.configs.keys()
        if old.configs.get(key) != new.configs.get(key)
    )
    delta.brokers_changed = sorted(
        id_
        for id_ in old.brokers.keys() | new.brokers.keys()
        if old.brokers.get(id_) != new.brokers.get(id_)
    )
    delta.features_changed = sorted(
        name
        for name in old.features.keys() | new.features.keys()
        if old.features.get(name) != new.features.get(name)
    )
    return delta
