"""What commands do to topics and partitions: what each expects, and what it changes."""

from collections.abc import Hashable, Iterator

from ..base.ids import NO_LEADER, LeaderEpoch, PartitionEpoch
from .image import ClusterImage, ConfigType, ImageDelta, PartitionState, TopicState
from .records import (
    NewPartition,
    PartitionChange,
    PartitionsChanged,
    PartitionsCreated,
    TopicCreated,
    TopicDeleted,
)
from .refusal import Reason, Refused


def _is_possible(new: NewPartition | PartitionChange) -> bool:
    """A leader is in the ISR, the ISR among the replicas, and no replica is named twice."""
    replicas = set(new.replicas)
    return (
        len(replicas) == len(new.replicas) > 0
        and replicas.issuperset(new.isr)
        and len(set(new.isr)) == len(new.isr)
        and (new.leader == NO_LEADER or new.leader in new.isr)
    )


def _all_possible(partitions: tuple[NewPartition, ...]) -> bool:
    # Most of a big topic's partitions are one and the same object.
    return all(_is_possible(each) for each in {id(each): each for each in partitions}.values())


def _new_state(index: int, new: NewPartition) -> PartitionState:
    return PartitionState(
        partition=index,
        leader=new.leader,
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        replicas=new.replicas,
        isr=new.isr,
    )


# --- TopicCreated ---------------------------------------------------------------------------------


def touched_by_topic_created(command: TopicCreated) -> Iterator[Hashable]:
    yield command.name
    yield command.topic_id


def why_not_topic_created(image: ClusterImage, command: TopicCreated) -> Refused | None:
    if command.name in image.topics or command.topic_id in image.topics_by_id:
        return Refused(Reason.TOPIC_EXISTS, f"Topic '{command.name}' already exists.")
    if not command.partitions or not _all_possible(command.partitions):
        return Refused(Reason.IMPOSSIBLE, f"Topic '{command.name}' has impossible partitions.")
    return None


def apply_topic_created(image: ClusterImage, command: TopicCreated, delta: ImageDelta) -> None:
    partitions = [_new_state(index, new) for index, new in enumerate(command.partitions)]
    topic = TopicState(command.name, command.topic_id, partitions)
    image.topics[topic.name] = topic
    image.topics_by_id[topic.topic_id] = topic
    delta.topics_created.append(topic)
    delta.partitions_changed.extend((topic, partition) for partition in partitions)
    if command.configs:
        image.configs[ConfigType.TOPIC, topic.name] = dict(command.configs)
        delta.configs_changed.append((ConfigType.TOPIC, topic.name))


# --- TopicDeleted ---------------------------------------------------------------------------------


def touched_by_topic_deleted(command: TopicDeleted) -> Iterator[Hashable]:
    yield command.topic_id


def why_not_topic_deleted(image: ClusterImage, command: TopicDeleted) -> Refused | None:
    if command.topic_id not in image.topics_by_id:
        return Refused(Reason.TOPIC_UNKNOWN, f"There is no topic with id {command.topic_id}.")
    return None


def apply_topic_deleted(image: ClusterImage, command: TopicDeleted, delta: ImageDelta) -> None:
    topic = image.topics_by_id.pop(command.topic_id)
    del image.topics[topic.name]
    image.configs.pop((ConfigType.TOPIC, topic.name), None)
    delta.topics_deleted.append(topic)


# --- PartitionsCreated ----------------------------------------------------------------------------


def touched_by_partitions_created(command: PartitionsCreated) -> Iterator[Hashable]:
    yield command.topic_id


def why_not_partitions_created(image: ClusterImage, command: PartitionsCreated) -> Refused | None:
    topic = image.topics_by_id.get(command.topic_id)
    if topic is None:
        return Refused(Reason.TOPIC_UNKNOWN, f"There is no topic with id {command.topic_id}.")
    if len(topic.partitions) != command.expects_count:
        why = f"Topic '{topic.name}' has {len(topic.partitions)} partitions now."
        return Refused(Reason.STALE_PARTITION_COUNT, why)
    if not command.partitions or not _all_possible(command.partitions):
        return Refused(Reason.IMPOSSIBLE, f"Topic '{topic.name}' would get impossible partitions.")
    return None


def apply_partitions_created(
    image: ClusterImage, command: PartitionsCreated, delta: ImageDelta
) -> None:
    topic = image.topics_by_id[command.topic_id]
    for index, new in enumerate(command.partitions, start=command.expects_count):
        partition = _new_state(index, new)
        topic.partitions.append(partition)
        delta.partitions_changed.append((topic, partition))


# --- PartitionsChanged ----------------------------------------------------------------------------


def touched_by_partitions_changed(command: PartitionsChanged) -> Iterator[Hashable]:
    for change in command.changes:
        yield command.topic_id, change.partition


def why_not_partitions_changed(image: ClusterImage, command: PartitionsChanged) -> Refused | None:
    topic = image.topics_by_id.get(command.topic_id)
    if topic is None:
        return Refused(Reason.TOPIC_UNKNOWN, f"There is no topic with id {command.topic_id}.")
    for change in command.changes:
        name = f"{topic.name}-{change.partition}"
        if not 0 <= change.partition < len(topic.partitions):
            return Refused(Reason.PARTITION_UNKNOWN, f"There is no partition {name}.")
        now = topic.partitions[change.partition]
        if now.partition_epoch != change.expects_partition_epoch:
            why = f"{name} has partition epoch {now.partition_epoch} now."
            return Refused(Reason.STALE_PARTITION_EPOCH, why)
        # A leader's epoch belongs to one leader: whoever leads anew leads under a higher one.
        least = now.leader_epoch if change.leader == now.leader else now.leader_epoch + 1
        is_possible = _is_possible(change) and change.leader not in change.offline
        if not is_possible or change.leader_epoch < least:
            return Refused(Reason.IMPOSSIBLE, f"{name} can't become {change}.")
    return None


def apply_partitions_changed(
    image: ClusterImage, command: PartitionsChanged, delta: ImageDelta
) -> None:
    topic = image.topics_by_id[command.topic_id]
    for change in command.changes:
        partition = PartitionState(
            partition=change.partition,
            leader=change.leader,
            leader_epoch=change.leader_epoch,
            partition_epoch=PartitionEpoch(change.expects_partition_epoch + 1),
            replicas=change.replicas,
            isr=change.isr,
            elr=change.elr,
            adding=change.adding,
            removing=change.removing,
            offline=change.offline,
        )
        topic.partitions[change.partition] = partition
        delta.partitions_changed.append((topic, partition))
