"""What becomes of leaders' requests to change their ISR. One may complete a move, and cost the leader its lead.

INVARIANT  an ISR changes only as the leader of the epoch that is in force wishes, from the state it saw; what was refused
           for a member stays refused.
PREVENTS   a deposed leader that drops a replica which, under the new one, acknowledged writes rely on; one that commits without
           a replica that is let in later by the same request, which was asked twice and late once.
PROVED BY  tests/cluster/controller/test_isr_policy.py::test_a_deposed_leader_changes_nothing,
           tests/cluster/controller/test_isr_policy.py::test_what_was_refused_for_a_member_stays_refused
"""

from ..base.errors import ErrorCode
from ..metadata.image import NO_DISK, PartitionState, TopicState
from ..metadata.records import PartitionChange
from .brokers_policy import check_broker_epoch
from .commands import (
    AlterPartition,
    IsrChange,
    IsrMember,
    IsrResult,
)
from .decision import CommandRefused, Decision, Scene
from .election_policy import Wish, as_it_is, changed, records_of
from .placement_policy import active_brokers

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
        except _Ineligible as refused:
            # Whatever else was wished in this epoch comes too late now, though the member may be in by then.
            changes.append((refused.topic, as_it_is(refused.now)))
            results.append(_refused(wish, refused))
            continue
        except CommandRefused as refused:
            results.append(_refused(wish, refused))
            continue
        isr = tuple(member.broker_id for member in wish.isr)
        min_isr = scene.min_insync_replicas(topic.name, now)
        alive = active_brokers(scene.image) | {now.leader}
        change = changed(now, Wish(isr=isr), alive=alive, disks=scene.disks, min_isr=min_isr)
        if change is not None:
            changes.append((topic, change))
        results.append(_in_force(wish, now, change))
    return Decision(records=list(records_of(changes)), reply=lambda _version: results)


class _Ineligible(CommandRefused):
    """A member may not be in. The leader goes on without it once it hears of that."""

    def __init__(self, topic: TopicState, now: PartitionState, why: str) -> None:
        super().__init__(ErrorCode.ineligible_replica, why)
        self.topic = topic
        self.now = now


def _refused(wish: IsrChange, why: CommandRefused) -> IsrResult:
    return IsrResult(
        topic_id=wish.topic_id,
        partition=wish.partition,
        error_code=why.error_code,
        error_message=why.message,
    )


def _in_force(wish: IsrChange, now: PartitionState, change: PartitionChange | None) -> IsrResult:
    epoch = (
        now.partition_epoch
        if change is None
        else type(now.partition_epoch)(now.partition_epoch + 1)
    )
    state = now if change is None else change
    moved = (
        state.leader != now.leader
    )  # to a replica that stays: the leader was on one that is removed
    return IsrResult(
        error_code=ErrorCode.new_leader_elected if moved else ErrorCode.none,
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
        if why := _why_not(scene, now, member):
            raise _Ineligible(topic, now, f"Broker {member.broker_id} is {why}.")
    return topic, now


def _why_not(scene: Scene, now: PartitionState, member: IsrMember) -> str:
    """Empty when it may be in."""
    broker = scene.image.brokers.get(member.broker_id)
    if broker is None:
        return "not registered"
    if broker.in_controlled_shutdown:
        return "shutting down"
    if broker.fenced:
        return "fenced"
    if member.broker_epoch not in (-1, broker.broker_epoch):
        # It was restarted since the leader heard of it: what it then had may be gone.
        return f"registered anew, with broker epoch {broker.broker_epoch}"
    if member.broker_id in now.offline:
        why = "which failed"
        if broker.waits_for_disk != NO_DISK:  # which of the two the mark does not tell
            why += ", or is on a disk that it does not have; it has to be started again"
        return f"without its log of this partition, {why}"
    return ""
