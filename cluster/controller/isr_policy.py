"""What becomes of leaders' requests to change their ISR, and of requests to elect leaders.

INVARIANT  an ISR changes only as the leader of the epoch that is in force wishes, from the state it saw.
PREVENTS   a deposed leader that drops a replica which, under the new one, acknowledged writes rely on.
PROVED BY  tests/cluster/controller/test_isr_policy.py::test_a_deposed_leader_changes_nothing
"""

from collections.abc import Iterator

from ..base.errors import ErrorCode
from ..base.ids import NO_LEADER
from ..metadata.image import PartitionState, TopicState
from ..metadata.records import PartitionChange, PartitionsChanged
from .brokers_policy import check_broker_epoch
from .commands import (
    AlterPartition,
    ElectionResult,
    ElectionType,
    ElectLeaders,
    IsrChange,
    IsrMember,
    IsrResult,
)
from .decision import CommandRefused, Decision, Scene
from .election_policy import Wish, changed
from .placement_policy import active_brokers


def _by_topic(
    changes: list[tuple[TopicState, PartitionChange]],
) -> list[PartitionsChanged]:
    grouped: dict[str, tuple[TopicState, list[PartitionChange]]] = {}
    for topic, change in changes:
        grouped.setdefault(topic.name, (topic, []))[1].append(change)
    return [
        PartitionsChanged(topic_id=topic.topic_id, changes=tuple(each))
        for topic, each in grouped.values()
    ]


# --- AlterPartition -------------------------------------------------------------------------------


def decide_alter_partition(scene: Scene, command: AlterPartition) -> Decision[list[IsrResult]]:
    results: list[IsrResult] = []
    changes: list[tuple[TopicState, PartitionChange]] = []
    seen: set[tuple[object, int]] = set()
    for wish in command.partitions:
        try:
            check_broker_epoch(scene, command.broker_id, command.broker_epoch)
            if (wish.topic_id, wish.partition) in seen:
                raise CommandRefused(ErrorCode.invalid_request, "A partition is named twice.")
            seen.add((wish.topic_id, wish.partition))
            topic, now = _checked(scene, command, wish)
        except CommandRefused as refused:
            results.append(
                IsrResult(
                    topic_id=wish.topic_id,
                    partition=wish.partition,
                    error_code=refused.error_code,
                    error_message=refused.message,
                )
            )
            continue
        isr = tuple(member.broker_id for member in wish.isr)
        min_isr = scene.min_insync_replicas(topic.name, now.replicas)
        change = changed(
            now, Wish(isr=isr), alive=active_brokers(scene.image) | {now.leader}, min_isr=min_isr
        )
        if change is not None:
            changes.append((topic, change))
        results.append(_in_force(wish, now, change))
    return Decision(records=list(_by_topic(changes)), reply=lambda _version: results)


def _in_force(wish: IsrChange, now: PartitionState, change: PartitionChange | None) -> IsrResult:
    epoch = (
        now.partition_epoch
        if change is None
        else type(now.partition_epoch)(now.partition_epoch + 1)
    )
    state = now if change is None else change
    return IsrResult(
        topic_id=wish.topic_id,
        partition=wish.partition,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=epoch,
        isr=state.isr,
    )


def _checked(
    scene: Scene, command: AlterPartition, wish: IsrChange
) -> tuple[TopicState, PartitionState]:
    """Kafka's checks in Kafka's order; epochs ahead of ours mean that this is no longer the controller."""
    topic = scene.image.topics_by_id.get(wish.topic_id)
    if topic is None:
        raise CommandRefused(ErrorCode.unknown_topic_id)
    now = scene.image.partition_by_id(wish.topic_id, wish.partition)
    if now is None:
        raise CommandRefused(ErrorCode.unknown_topic_or_partition)
    if wish.leader_epoch > now.leader_epoch or wish.partition_epoch > now.partition_epoch:
        raise CommandRefused(ErrorCode.not_controller)
    if wish.leader_epoch < now.leader_epoch:
        raise CommandRefused(ErrorCode.fenced_leader_epoch)
    if command.broker_id != now.leader:
        raise CommandRefused(ErrorCode.invalid_request, f"The leader is {now.leader}.")
    if wish.partition_epoch < now.partition_epoch:
        raise CommandRefused(ErrorCode.invalid_update_version)
    isr = [member.broker_id for member in wish.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(now.replicas) or now.leader not in isr:
        raise CommandRefused(ErrorCode.invalid_request, f"{isr} can't be the ISR.")
    for member in wish.isr:
        _check_member(scene, member)
    return topic, now


def _check_member(scene: Scene, member: IsrMember) -> None:
    broker = scene.image.brokers.get(member.broker_id)
    if broker is None:
        why = "not registered"
    elif broker.in_controlled_shutdown:
        why = "shutting down"
    elif broker.fenced:
        why = "fenced"
    elif member.broker_epoch not in (-1, broker.broker_epoch):
        # It was restarted since the leader heard of it: what it then had may be gone.
        why = f"registered anew, with broker epoch {broker.broker_epoch}"
    else:
        return
    why = f"Broker {member.broker_id} is {why}."
    raise CommandRefused(ErrorCode.ineligible_replica, why)


# --- ElectLeaders ---------------------------------------------------------------------------------


def decide_elect_leaders(scene: Scene, command: ElectLeaders) -> Decision[list[ElectionResult]]:
    results: list[ElectionResult] = []
    changes: list[tuple[TopicState, PartitionChange]] = []
    for topic_name, index in _asked(scene, command):
        try:
            topic, change = _elected(scene, command.election, topic_name, index)
        except CommandRefused as refused:
            not_needed = refused.error_code is ErrorCode.election_not_needed
            if not (command.partitions is None and not_needed):
                results.append(
                    ElectionResult(
                        topic=topic_name,
                        partition=index,
                        error_code=refused.error_code,
                        error_message=refused.message,
                    )
                )
            continue
        changes.append((topic, change))
        results.append(ElectionResult(topic=topic_name, partition=index))
    return Decision(records=list(_by_topic(changes)), reply=lambda _version: results)


def _asked(scene: Scene, command: ElectLeaders) -> Iterator[tuple[str, int]]:
    if command.partitions is None:
        yield from scene.image.topic_partitions()
    else:
        yield from dict.fromkeys(command.partitions)


def _elected(
    scene: Scene, election: ElectionType, topic_name: str, index: int
) -> tuple[TopicState, PartitionChange]:
    topic = scene.image.topics.get(topic_name)
    now = scene.image.partition(topic_name, index)
    if topic is None:
        why = f"No such topic as {topic_name}"
        raise CommandRefused(ErrorCode.unknown_topic_or_partition, why)
    if now is None:
        why = f"No such partition as {topic_name}-{index}"
        raise CommandRefused(ErrorCode.unknown_topic_or_partition, why)
    if election is ElectionType.PREFERRED:
        if now.leader == now.replicas[0]:
            raise CommandRefused(ErrorCode.election_not_needed)
    elif now.leader != NO_LEADER:
        raise CommandRefused(ErrorCode.election_not_needed)
    change = changed(
        now,
        Wish(preferred=election is ElectionType.PREFERRED),
        alive=active_brokers(scene.image),
        min_isr=scene.min_insync_replicas(topic.name, now.replicas),
    )
    if change is not None and change.leader not in (now.leader, NO_LEADER):
        return topic, change
    if election is ElectionType.PREFERRED:
        raise CommandRefused(ErrorCode.preferred_leader_not_available)
    # An unclean election is a person's decision about one partition, made by its own command.
    raise CommandRefused(ErrorCode.eligible_leaders_not_available)
