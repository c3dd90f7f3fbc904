"""What becomes of requests to move partitions, and of moves that have arrived (KIP-455).

INVARIANT  a replica is dropped only in the change that finds its successors in sync, or when its move is cancelled.
PREVENTS   a move that leaves fewer copies of what was acknowledged than there were before it.
PROVED BY  tests/cluster/controller/test_reassign_policy.py::test_nothing_is_dropped_before_the_new_ones_are_in_sync

A move has two steps. The first adds the new replicas and says what is added and removed; they catch up as
followers do. The second happens in the very change of the ISR that completes it (`election_policy.changed`):
what is removed goes, and where the leader goes with it another one leads.
"""

from collections.abc import Iterator

from ..base.errors import ErrorCode
from ..base.ids import BrokerId
from ..metadata.image import ClusterImage, PartitionState, TopicState
from ..metadata.records import PartitionChange
from .commands import AlterReassignments, Reassignment, ReassignmentResult
from .decision import TOO_LARGE, CommandRefused, Decision, Scene
from .election_policy import Placement, Wish, changed, records_of
from .placement_policy import active_brokers, check_assignment

CHANGES_PER_TICK_MAX = 1000


def decide_alter_reassignments(
    scene: Scene, command: AlterReassignments
) -> Decision[list[ReassignmentResult]]:
    results: list[ReassignmentResult] = []
    changes: list[tuple[TopicState, PartitionChange]] = []
    seen: set[tuple[str, int]] = set()
    for asked in command.partitions:
        try:
            # Kafka answers both as done and follows the first; here the second is told.
            if (asked.topic, asked.partition) in seen:
                raise CommandRefused(ErrorCode.invalid_request, "A partition is named twice.")
            topic, now = _partition(scene.image, asked)
            seen.add((asked.topic, asked.partition))
            wish = _wish(scene, asked, now, allow_factor_change=command.allow_factor_change)
            change = _change(scene, topic, now, wish)
            if change is not None:
                changes.append((topic, change))
        except CommandRefused as refused:
            results.append(_failed(asked, refused))
            continue
        results.append(ReassignmentResult(topic=asked.topic, partition=asked.partition))
    return Decision(
        records=list(records_of(changes)),
        reply=lambda _version: results,
        too_large=lambda _refused: [
            _failed(each, CommandRefused(ErrorCode.policy_violation, TOO_LARGE))
            for each in command.partitions
        ],
    )


def decide_tick(scene: Scene) -> Decision[None]:
    """Finish the moves that have arrived.

    The change of the ISR that completes a move finishes it, so there is nothing to do here as a rule: only where
    a move is complete by other means, such as the rule of a later version.
    """
    changes: list[tuple[TopicState, PartitionChange]] = []
    for topic, now in moving(scene.image):
        if len(changes) >= CHANGES_PER_TICK_MAX:
            break
        if Placement.of(now).is_reached(now.isr):
            change = _change(scene, topic, now, Wish())
            if change is not None:
                changes.append((topic, change))
    return Decision(records=list(records_of(changes)), reply=lambda _version: None)


def moving(image: ClusterImage) -> Iterator[tuple[TopicState, PartitionState]]:
    """The partitions that are on the move, topics by name."""
    for name in sorted(image.topics):
        topic = image.topics[name]
        for partition in topic.partitions:
            if partition.adding or partition.removing:
                yield topic, partition


def _failed(asked: Reassignment, refused: CommandRefused) -> ReassignmentResult:
    return ReassignmentResult(
        topic=asked.topic,
        partition=asked.partition,
        error_code=refused.error_code,
        error_message=refused.message,
    )


def _partition(image: ClusterImage, asked: Reassignment) -> tuple[TopicState, PartitionState]:
    topic = image.topics.get(asked.topic)
    if topic is None:
        why = f"Unable to find a topic named {asked.topic}."
        raise CommandRefused(ErrorCode.unknown_topic_or_partition, why)
    now = image.partition(asked.topic, asked.partition)
    if now is None:
        why = f"Unable to find partition {asked.topic}:{asked.partition}."
        raise CommandRefused(ErrorCode.unknown_topic_or_partition, why)
    return topic, now


def _change(
    scene: Scene, topic: TopicState, now: PartitionState, wish: Wish
) -> PartitionChange | None:
    return changed(
        now,
        wish,
        alive=active_brokers(scene.image),
        disks=scene.disks,
        min_isr=scene.min_insync_replicas(topic.name, now),
    )


def _wish(
    scene: Scene, asked: Reassignment, now: PartitionState, *, allow_factor_change: bool
) -> Wish:
    if asked.replicas is None:
        return _reverted(asked, now)
    check_assignment(scene.image, asked.replicas, None)
    if not allow_factor_change:
        _check_factor(asked.replicas, now)
    return Wish(placement=_placement(asked.replicas, now))


def _check_factor(target: tuple[BrokerId, ...], now: PartitionState) -> None:
    factor = len(Placement.of(now).target())
    if len(target) != factor:
        why = f"The replication factor is changed from {factor} to {len(target)}"
        raise CommandRefused(ErrorCode.invalid_replication_factor, why)


def _placement(target: tuple[BrokerId, ...], now: PartitionState) -> Placement:
    """The target first, then what is removed. Replicas of an earlier move that is given up are in both lists.

    They are not the partition's own, so that cancelling drops them, and are to go, so that the end drops them.
    """
    original = now.original_replicas
    removing = tuple(sorted(each for each in now.replicas if each not in target))
    adding = {each for each in target if each not in original}
    given_up = {each for each in now.adding if each not in target}
    return Placement((*target, *removing), tuple(sorted(adding | given_up)), removing)


def _reverted(asked: Reassignment, now: PartitionState) -> Wish:
    if not now.is_moving:
        raise CommandRefused(ErrorCode.no_reassignment_in_progress)
    original = now.original_replicas
    isr = tuple(each for each in now.isr if each in original)
    if not isr:
        why = (
            f"Unable to revert partition assignment for {asked.topic}:{asked.partition} because it"
            " would require an unclean leader election."
        )
        raise CommandRefused(ErrorCode.invalid_replica_assignment, why)
    return Wish(isr=isr, placement=Placement(original))
