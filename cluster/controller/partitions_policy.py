"""What becomes of requests to add partitions to topics: Kafka's rules in Kafka's words."""

from typing import Final

from ..base.errors import ErrorCode
from ..base.ids import INTERNAL_TOPICS
from ..metadata.records import PartitionsCreated
from .commands import CreatePartitions, MorePartitions, TopicResult
from .decision import (
    PARTITIONS_PER_REQUEST_MAX,
    TOO_MANY_PARTITIONS,
    CommandRefused,
    Decision,
    Scene,
)
from .election_policy import Placement
from .placement_policy import active_brokers, assigned_partition, check_assignment, place
from .topics_policy import DUPLICATE_NAME, failed, twice_in

# Kafka lets it happen, and every coordinator then looks for some of its groups where they are not.
_INTERNAL: Final = (
    "{} can't have more partitions: which one a group or a transactional id is kept in goes by their number, and what is"
    " kept of those that would move could not be found any more."
)


def decide_create_partitions(
    scene: Scene, command: CreatePartitions
) -> Decision[list[TopicResult]]:
    twice = twice_in([topic.name for topic in command.topics])
    refused = CommandRefused(ErrorCode.invalid_request, DUPLICATE_NAME)
    results = [failed(name, refused) for name in twice]
    records: list[PartitionsCreated] = []
    room = PARTITIONS_PER_REQUEST_MAX
    for topic in command.topics:
        if topic.name in twice:
            continue
        try:
            record = _more(scene, topic, room)
        except CommandRefused as no:
            results.append(failed(topic.name, no))
            continue
        room -= len(record.partitions)
        records.append(record)
        count = record.expects_count + len(record.partitions)
        results.append(TopicResult(name=topic.name, topic_id=record.topic_id, num_partitions=count))
    kept = [] if command.validate_only else records
    return Decision(
        records=list(kept),
        reply=lambda _version: results,
        too_large=lambda refused: [failed(topic.name, refused) for topic in command.topics],
    )


def _more(scene: Scene, topic: MorePartitions, room: int) -> PartitionsCreated:
    known = scene.image.topics.get(topic.name)
    if known is None:
        raise CommandRefused(ErrorCode.unknown_topic_or_partition)
    if topic.name in INTERNAL_TOPICS:
        raise CommandRefused(ErrorCode.invalid_topic_exception, _INTERNAL.format(topic.name))
    have = len(known.partitions)
    additional = topic.count - have
    if additional == 0:
        raise CommandRefused(
            ErrorCode.invalid_partitions, f"Topic already has {have} partition(s)."
        )
    if additional < 0:
        why = f"The topic {topic.name} currently has {have} partition(s); {topic.count} would not"
        raise CommandRefused(ErrorCode.invalid_partitions, f"{why} be an increase.")
    if topic.assignments is not None and len(topic.assignments) != additional:
        why = f"Attempted to add {additional} additional partition(s), but only"
        why += f" {len(topic.assignments)} assignment(s) were specified."
        raise CommandRefused(ErrorCode.invalid_replica_assignment, why)
    if additional > room:
        raise CommandRefused(ErrorCode.policy_violation, TOO_MANY_PARTITIONS)
    factor = len(Placement.of(known.partitions[0]).target())  # of a move, not what is to go
    active = active_brokers(scene.image)
    if topic.assignments is None:
        partitions = place(scene.image.brokers.values(), additional, factor, scene.rng)
    else:
        partitions = []
        for index, replicas in enumerate(topic.assignments, start=have):
            check_assignment(scene.image, replicas, factor)
            partitions.append(assigned_partition(index, replicas, active))
    return PartitionsCreated(
        topic_id=known.topic_id, expects_count=have, partitions=tuple(partitions)
    )
