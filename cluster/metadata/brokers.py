"""What commands do to the cluster, its brokers, their producer ids and its features; the version that a batch expects."""

from collections.abc import Hashable, Iterator

from ..base.ids import BrokerEpoch, BrokerId
from .image import NO_BROKER_EPOCH, BrokerState, ClusterImage, ImageDelta
from .records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterFormed,
    FeatureChanged,
    ImageExpected,
    ProducerIdsAllocated,
)
from .refusal import Reason, Refused

PRODUCER_ID_MAX = 2**63 - 1


def _why_not_epoch(
    image: ClusterImage, broker_id: BrokerId, expects: BrokerEpoch
) -> Refused | None:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return Refused(Reason.BROKER_UNKNOWN, f"Broker {broker_id} is not registered.")
    if broker.broker_epoch != expects:
        why = f"Broker {broker_id} has broker epoch {broker.broker_epoch} now."
        return Refused(Reason.STALE_BROKER_EPOCH, why)
    return None


# --- ClusterFormed --------------------------------------------------------------------------------


def touched_by_cluster_formed(command: ClusterFormed) -> Iterator[Hashable]:
    yield "cluster"
    yield from (("feature", name) for name in command.features)


def why_not_cluster_formed(image: ClusterImage, command: ClusterFormed) -> Refused | None:
    if image.cluster_id:
        return Refused(Reason.CLUSTER_EXISTS, f"This is cluster {image.cluster_id}.")
    if not command.cluster_id:
        return Refused(Reason.IMPOSSIBLE, "A cluster must have an id.")
    return None


def apply_cluster_formed(image: ClusterImage, command: ClusterFormed, delta: ImageDelta) -> None:
    image.cluster_id = command.cluster_id
    image.features.update(command.features)
    delta.features_changed.extend(sorted(command.features))


# --- BrokerRegistered -----------------------------------------------------------------------------


def touched_by_broker_registered(command: BrokerRegistered) -> Iterator[Hashable]:
    yield "broker", command.broker_id


def why_not_broker_registered(image: ClusterImage, command: BrokerRegistered) -> Refused | None:
    known = image.brokers.get(command.broker_id)
    broker_epoch = NO_BROKER_EPOCH if known is None else known.broker_epoch
    if broker_epoch != command.expects_broker_epoch:
        why = f"Broker {command.broker_id} has broker epoch {broker_epoch} now."
        return Refused(Reason.STALE_BROKER_EPOCH, why)
    return None


def apply_broker_registered(
    image: ClusterImage, command: BrokerRegistered, delta: ImageDelta
) -> None:
    image.brokers[command.broker_id] = BrokerState(
        broker_id=command.broker_id,
        broker_epoch=BrokerEpoch(image.version),
        incarnation_id=command.incarnation_id,
        endpoints=command.endpoints,
        rack=command.rack,
        fenced=command.fenced,
        features=command.features,
        disk=command.disk,
        waits_for_disk=command.waits_for_disk,
    )
    delta.brokers_changed.append(command.broker_id)


# --- BrokerChanged --------------------------------------------------------------------------------


def touched_by_broker_changed(command: BrokerChanged) -> Iterator[Hashable]:
    yield "broker", command.broker_id


def why_not_broker_changed(image: ClusterImage, command: BrokerChanged) -> Refused | None:
    return _why_not_epoch(image, command.broker_id, command.expects_broker_epoch)


def apply_broker_changed(image: ClusterImage, command: BrokerChanged, delta: ImageDelta) -> None:
    now = image.brokers[command.broker_id]
    image.brokers[command.broker_id] = BrokerState(
        broker_id=now.broker_id,
        broker_epoch=now.broker_epoch,
        incarnation_id=now.incarnation_id,
        endpoints=now.endpoints,
        rack=now.rack,
        fenced=command.fenced,
        in_controlled_shutdown=command.in_controlled_shutdown,
        features=now.features,
        disk=now.disk,
        waits_for_disk=now.waits_for_disk,
    )
    delta.brokers_changed.append(command.broker_id)


# --- BrokerUnregistered ---------------------------------------------------------------------------


def touched_by_broker_unregistered(command: BrokerUnregistered) -> Iterator[Hashable]:
    yield "broker", command.broker_id


def why_not_broker_unregistered(image: ClusterImage, command: BrokerUnregistered) -> Refused | None:
    return _why_not_epoch(image, command.broker_id, command.expects_broker_epoch)


def apply_broker_unregistered(
    image: ClusterImage, command: BrokerUnregistered, delta: ImageDelta
) -> None:
    del image.brokers[command.broker_id]
    delta.brokers_changed.append(command.broker_id)


# --- ProducerIdsAllocated -------------------------------------------------------------------------


def touched_by_producer_ids(_command: ProducerIdsAllocated) -> Iterator[Hashable]:
    yield "producer ids"


def why_not_producer_ids(image: ClusterImage, command: ProducerIdsAllocated) -> Refused | None:
    refused = _why_not_epoch(image, command.broker_id, command.expects_broker_epoch)
    if refused is not None:
        return refused
    if command.first_producer_id != image.next_producer_id:
        why = f"The next producer id is {image.next_producer_id} now."
        return Refused(Reason.PRODUCER_IDS_TAKEN, why)
    if command.count < 1 or command.first_producer_id + command.count - 1 > PRODUCER_ID_MAX:
        return Refused(Reason.IMPOSSIBLE, f"There are no {command.count} more producer ids.")
    return None


def apply_producer_ids(
    image: ClusterImage, command: ProducerIdsAllocated, _delta: ImageDelta
) -> None:
    image.next_producer_id = command.first_producer_id + command.count


# --- FeatureChanged -------------------------------------------------------------------------------


def touched_by_feature_changed(command: FeatureChanged) -> Iterator[Hashable]:
    yield "feature", command.name


def why_not_feature_changed(image: ClusterImage, command: FeatureChanged) -> Refused | None:
    level = image.features.get(command.name, 0)
    if level != command.expects_level:
        return Refused(Reason.STALE_FEATURE, f"{command.name} has level {level} now.")
    return None


def apply_feature_changed(image: ClusterImage, command: FeatureChanged, delta: ImageDelta) -> None:
    if command.level:
        image.features[command.name] = command.level
    else:
        image.features.pop(command.name, None)
    delta.features_changed.append(command.name)


# --- ImageExpected --------------------------------------------------------------------------------


def touched_by_image_expected(_command: ImageExpected) -> Iterator[Hashable]:
    yield "image"


def why_not_image_expected(image: ClusterImage, command: ImageExpected) -> Refused | None:
    if image.version != command.version:
        why = f"It was decided on version {command.version}; the image has {image.version} now."
        return Refused(Reason.STALE_IMAGE, why)
    return None


def apply_image_expected(_image: ClusterImage, _command: ImageExpected, _delta: ImageDelta) -> None:
    """Nothing becomes of it: the others of its batch are what happens."""
