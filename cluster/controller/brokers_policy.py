"""What becomes of brokers that come, live, and go, and of what they ask for."""

import functools
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ..base.errors import ErrorCode
from ..base.ids import NO_LEADER, BrokerEpoch, BrokerId, TopicPartition
from ..metadata import levels
from ..metadata.brokers import PRODUCER_ID_MAX
from ..metadata.image import NO_BROKER_EPOCH, NO_DISK, BrokerState, PartitionState, TopicState
from ..metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ClusterFormed,
    PartitionChange,
    PartitionsChanged,
    ProducerIdsAllocated,
)
from .commands import (
    AllocateProducerIds,
    BrokerHeartbeat,
    FailedReplica,
    FormCluster,
    HeartbeatResult,
    ItemResult,
    ProducerIdBlock,
    RegisterBroker,
    Registered,
    UnregisterBroker,
)
from .decision import CommandRefused, Decision, Scene, printed
from .disks_policy import Disks, is_last, why_register_again
from .election_policy import Wish, changed, records_of
from .features_policy import why_not_here
from .min_isr_policy import of_new_cluster
from .placement_policy import active_brokers

PRODUCER_ID_BLOCK: Final = 1000  # Kafka's ProducerIdsBlock
# The feature levels that a new cluster starts with: eligible leader replicas, KIP-848 groups, KIP-890 transactions.
FEATURES: Final = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "transaction.version": 2,
}


def decide_form_cluster(scene: Scene, command: FormCluster) -> Decision[str]:
    known = scene.image.cluster_id
    if known:
        return Decision(reply=lambda _version: known)
    cluster_id = command.cluster_id or printed(scene.new_id())
    formed = ClusterFormed(cluster_id=cluster_id, features=FEATURES)
    return Decision(records=[formed, of_new_cluster(scene)], reply=lambda _version: cluster_id)


# --- registration ---------------------------------------------------------------------------------


def _why_not_registered(scene: Scene, command: RegisterBroker) -> Registered | None:
    image = scene.image
    if command.cluster_id != image.cluster_id:
        why = f"Expected cluster ID {image.cluster_id}, but got cluster ID {command.cluster_id}"
        return Registered(error_code=ErrorCode.inconsistent_cluster_id, error_message=why)
    told = levels.OLDEST, levels.told_by(command.features, command.disk)
    why_not = why_not_here(
        {**image.features, levels.NAME: levels.level_of(image)},
        {**command.features, levels.NAME: told},
    )
    if why_not is not None:
        return Registered(error_code=ErrorCode.unsupported_version, error_message=why_not)
    return None


def decide_register_broker(scene: Scene, command: RegisterBroker) -> Decision[Registered]:
    image, mine = scene.image, command.broker_id
    refused = _why_not_registered(scene, command)
    if refused is not None:
        return Decision(reply=lambda _version: refused)
    level = levels.level_of(image, [command])
    # What older nodes can't read of is not told: it is as it was with those.
    disk = command.disk if level >= levels.DISKS else NO_DISK
    marked = mine if level >= levels.FAILED_LOGS else None
    before = image.brokers.get(mine)
    disks = Disks(mine, before, disk)
    failed = {(each.topic_id, each.partition): each for each in command.failed}
    others = active_brokers(image) - {mine}
    may_lack = command.may_lack()

    def starts(topic: TopicState, now: PartitionState) -> Wish:
        if not disks.has(now):
            last = mine if is_last(mine, now) else None
            return Wish(
                isr=_without(now, mine), lost=mine, failed=last, restarted=None if last else mine
            )
        log = failed.get((topic.topic_id, now.partition))
        lacks = may_lack(topic.topic_id, now.partition) or (log is not None and log.may_lack)
        lost = mine if lacks else None
        if log is not None:
            disks.fails(now)
            return Wish(isr=_without(now, mine), lost=lost, failed=marked)
        if command.fenced:
            return Wish(isr=_without(now, mine), lost=lost, restarted=mine)
        return Wish(lost=lost, new_epoch=now.leader == mine, restarted=mine)

    may_lead = others if command.fenced else others | {mine}
    changes = _changes(scene, mine, starts, may_lead)
    record = BrokerRegistered(
        broker_id=mine,
        incarnation_id=command.incarnation_id,
        endpoints=command.endpoints,
        rack=command.rack,
        fenced=command.fenced,
        features=command.features,
        expects_broker_epoch=NO_BROKER_EPOCH if before is None else before.broker_epoch,
        disk=disk,
        waits_for_disk=disks.waits_for,
    )
    return Decision(
        records=[record, *changes],
        reply=lambda version: Registered(broker_epoch=BrokerEpoch(version)),
        # Who is alive at once leads anew, each time that it is decided.
        apart=functools.partial(_apart, scene, mine, changes) if command.fenced else None,
    )


def _without(now: PartitionState, broker_id: BrokerId) -> tuple[BrokerId, ...] | None:
    """The ISR without this broker; None, which leaves it as it is, when nobody else is in it."""
    return tuple(each for each in now.isr if each != broker_id) or None


def _changes(
    scene: Scene,
    broker_id: BrokerId,
    wish: Callable[[TopicState, PartitionState], Wish],
    alive: set[BrokerId],
) -> list[PartitionsChanged]:
    """One record a topic, for the partitions that have a replica on this broker and don't stay as they are."""
    by_topic: dict[str, tuple[TopicState, list[PartitionChange]]] = {}
    for topic, partition in scene.image.partitions_of(broker_id):
        min_isr = scene.min_insync_replicas(topic.name, partition)
        change = changed(
            partition, wish(topic, partition), alive=alive, disks=scene.disks, min_isr=min_isr
        )
        if change is not None:
            by_topic.setdefault(topic.name, (topic, []))[1].append(change)
    return [
        PartitionsChanged(topic_id=topic.topic_id, changes=tuple(changes))
        for topic, changes in by_topic.values()
    ]


# --- life -----------------------------------------------------------------------------------------


def check_broker_epoch(scene: Scene, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerState:
    """CommandRefused for a broker that is not, or no longer, registered under this epoch."""
    broker = scene.image.brokers.get(broker_id)
    if broker is None:
        why = f"No broker registration found for broker id {broker_id}"
        raise CommandRefused(ErrorCode.stale_broker_epoch, why)
    if broker.broker_epoch != broker_epoch:
        why = f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}"
        raise CommandRefused(ErrorCode.stale_broker_epoch, why)
    return broker


def decide_heartbeat(scene: Scene, command: BrokerHeartbeat) -> Decision[HeartbeatResult]:
    """A fenced broker is let in once it has seen its own registration; one that wants to go is let go."""
    try:
        broker = check_broker_epoch(scene, command.broker_id, command.broker_epoch)
    except CommandRefused as refused:
        failed = HeartbeatResult(error_code=refused.error_code, error_message=refused.message)
        return Decision(reply=lambda _version: failed)
    caught_up = command.image_version >= broker.broker_epoch
    failed_here = () if command.want_shut_down else command.failed
    again = why_register_again(
        broker, (scene.image.partition_by_id(each.topic_id, each.partition) for each in failed_here)
    )
    if again is not None:
        stale = HeartbeatResult(error_code=ErrorCode.stale_broker_epoch, error_message=again)
        return Decision(reply=lambda _version: stale)
    failures = _failures(scene, broker, failed_here)
    if failures:
        # Before anything else: whoever is let in first might be made the leader of what it can't read.
        said = HeartbeatResult(is_caught_up=caught_up, is_fenced=broker.fenced)
        return Decision(records=list(failures), reply=lambda _version: said, apart=lambda: failures)
    if command.want_shut_down:
        fenced, leaving = broker.fenced, True
    else:
        # Who has asked to go does not come back: what says otherwise was sent before, and is late.
        leaving = broker.in_controlled_shutdown
        fenced = command.want_fence or (broker.fenced and (leaving or not caught_up))
    result = HeartbeatResult(
        is_caught_up=caught_up, is_fenced=fenced, should_shut_down=command.want_shut_down
    )
    if (fenced, leaving) == (broker.fenced, broker.in_controlled_shutdown):
        return Decision(reply=lambda _version: result)
    record, changes = _broker_changed(scene, broker, fenced=fenced, leaving=leaving)
    return Decision(
        records=[record, *changes],
        reply=lambda _version: result,
        apart=lambda: _apart(scene, broker.broker_id, changes),
    )


def _failures(
    scene: Scene, broker: BrokerState, failed: Sequence[FailedReplica]
) -> list[PartitionsChanged]:
    """Whoever has all of what these logs hold leads instead; nobody, where nobody has, if all nodes can read of that."""
    alive, mine = active_brokers(scene.image), broker.broker_id
    marked = mine if levels.level_of(scene.image) >= levels.FAILED_LOGS else None
    changes: list[tuple[TopicState, PartitionChange]] = []
    lacks: dict[tuple[UUID, int], bool] = {}  # of one that is named twice the worse counts
    for each in failed:
        log = each.topic_id, each.partition
        lacks[log] = lacks.get(log, False) or each.may_lack
    for (topic_id, index), may_lack in lacks.items():
        topic = scene.image.topics_by_id.get(topic_id)
        now = scene.image.partition_by_id(topic_id, index)
        if topic is None or now is None or mine not in now.replicas or mine in now.offline:
            continue
        lost = mine if may_lack else None
        wish = Wish(isr=_without(now, mine), failed=marked, lost=lost)
        min_isr = scene.min_insync_replicas(topic.name, now)
        change = changed(now, wish, alive=alive, disks=scene.disks, min_isr=min_isr)
        if change is not None:
            changes.append((topic, change))
    return records_of(changes)


def decide_fence(scene: Scene, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Decision[None]:
    """A broker that was silent for too long. One that has registered anew meanwhile is left alone."""
    broker = scene.image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch or broker.fenced:
        return Decision(reply=lambda _version: None)
    record, changes = _broker_changed(scene, broker, fenced=True, leaving=False)
    return Decision(
        records=[record, *changes],
        reply=lambda _version: None,
        apart=lambda: _apart(scene, broker_id, changes),
    )


def _broker_changed(
    scene: Scene, broker: BrokerState, *, fenced: bool, leaving: bool
) -> tuple[BrokerChanged, list[PartitionsChanged]]:
    """The broker's new state, and what it means for its partitions: a leader less, or one more to choose from."""
    record = BrokerChanged(
        broker_id=broker.broker_id,
        expects_broker_epoch=broker.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=leaving,
    )
    alive = active_brokers(scene.image) - {broker.broker_id}
    if fenced or leaving:
        changes = _changes(
            scene,
            broker.broker_id,
            lambda _topic, now: Wish(isr=_without(now, broker.broker_id)),
            alive,
        )
    else:
        changes = _changes(
            scene, broker.broker_id, lambda _topic, _now: Wish(), alive | {broker.broker_id}
        )
    return record, changes


def _apart(
    scene: Scene, broker_id: BrokerId, records: Sequence[PartitionsChanged]
) -> list[PartitionsChanged]:
    """What may be so before the broker's own state is, should the controller end in between; those with a leader first.

    It is not the same where a log has failed, or waits for another disk: which it is goes by all of them together
    (`disks_policy.py`).
    """
    led: list[tuple[TopicState, PartitionChange]] = []
    leaderless: list[tuple[TopicState, PartitionChange]] = []
    for record in records:
        topic = scene.image.topics_by_id[record.topic_id]
        for change in record.changes:
            if broker_id in (*change.offline, *topic.partitions[change.partition].offline):
                continue
            (leaderless if change.leader == NO_LEADER else led).append((topic, change))
    return [*records_of(led), *records_of(leaderless)]


def decide_unregister_broker(scene: Scene, command: UnregisterBroker) -> Decision[ItemResult]:
    """Taken off the list and out of every ISR that has someone else.

    Kafka takes off one that is alive too, with all that it leads. Here that is refused: it is never meant. So is one who
    is the last that has everything of a partition. Forgotten with its disk, it could come with an empty one and lead. And
    so is a voter: gone for good it would be missed in every vote, and the list would not show who is missed.
    """
    broker = scene.image.brokers.get(command.broker_id)
    if broker is None:
        why = f"Broker ID {command.broker_id} is not currently registered"
        unknown = ItemResult(error_code=ErrorCode.broker_id_not_registered, error_message=why)
        return Decision(reply=lambda _version: unknown)
    why_not = _why_not_unregistered(scene, broker)
    if why_not is not None:
        refused = ItemResult(error_code=ErrorCode.invalid_request, error_message=why_not)
        return Decision(reply=lambda _version: refused)
    record = BrokerUnregistered(
        broker_id=broker.broker_id, expects_broker_epoch=broker.broker_epoch
    )
    changes = _changes(
        scene,
        broker.broker_id,
        # With it goes what is known of its disk: whatever comes back under its number has nothing for certain.
        lambda _topic, now: Wish(isr=_without(now, broker.broker_id), lost=broker.broker_id),
        active_brokers(scene.image),
    )
    return Decision(
        records=[record, *changes],
        reply=lambda _version: ItemResult(),
        too_large=lambda refused: ItemResult(
            error_code=refused.error_code, error_message=f"{refused.message} Move away what it has."
        ),
    )


def _why_not_unregistered(scene: Scene, broker: BrokerState) -> str | None:
    mine = broker.broker_id
    # Before it is told to stop: its vote may be needed to take its vote away.
    if mine in scene.voters:
        return (
            f"Broker {mine} still votes on the metadata, and would be missed in every vote:"
            f" `fencepost node voters remove {mine}` first."
        )
    if not broker.fenced:
        return f"Broker {mine} is alive. Stop it first, and move away what it has."
    waiting = _waits_for(scene, mine)
    if waiting is not None:
        return (
            f"Broker {mine} is the last that has all of {waiting}. Give it back its disk and start it, or give"
            f" up what only it has: `fencepost partition recover {waiting.topic} {waiting.partition} --accept-data-loss`,"
            " or delete the topic."
        )
    return None


def _waits_for(scene: Scene, broker_id: BrokerId) -> TopicPartition | None:
    """A partition of which nobody else has everything, if there is one."""
    for name in sorted(scene.image.topics):
        for now in scene.image.topics[name].partitions:
            if is_last(broker_id, now):
                return TopicPartition(name, now.partition)
    return None


# --- producer ids ---------------------------------------------------------------------------------


def decide_allocate_producer_ids(
    scene: Scene, command: AllocateProducerIds
) -> Decision[ProducerIdBlock]:
    first = scene.image.next_producer_id
    try:
        check_broker_epoch(scene, command.broker_id, command.broker_epoch)
        if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
            why = (
                f"Exhausted all producerIds as the next block's end producerId has exceeded {first}"
            )
            raise CommandRefused(ErrorCode.unknown_server_error, why)
    except CommandRefused as refused:
        failed = ProducerIdBlock(error_code=refused.error_code, error_message=refused.message)
        return Decision(reply=lambda _version: failed)
    record = ProducerIdsAllocated(
        broker_id=command.broker_id,
        expects_broker_epoch=command.broker_epoch,
        first_producer_id=first,
        count=PRODUCER_ID_BLOCK,
    )
    block = ProducerIdBlock(first_producer_id=first, count=PRODUCER_ID_BLOCK)
    return Decision(records=[record], reply=lambda _version: block)
