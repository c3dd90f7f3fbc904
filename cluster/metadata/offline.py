"""Why a partition has no leader, and what a person can do: sentences for the command line and the console."""

from collections.abc import Sequence
from typing import Final

from ..base.ids import INTERNAL_TOPICS, NO_LEADER, BrokerId, TopicPartition
from .image import NO_DISK, ClusterImage, PartitionState

ALIVE: Final = "is alive"
# With the id behind it: what DescribeLogDirs calls a disk that its node has no more.
LOST_DISK: Final = "directory.id="


def why_offline(image: ClusterImage, place: TopicPartition) -> str | None:
    """Who must return, and the way out if he never will. None when the partition has a leader."""
    now = image.partition(*place)
    if now is None:
        return f"There is no partition {place}."
    if now.leader != NO_LEADER:
        return None
    complete = complete_replicas(now)
    alone = len(complete) == 1
    has = "Only" if alone else "Only one of"
    who = "; ".join(f"{_role(now, each)} {_condition(image, now, each)}" for each in complete)
    said = f"{has} {_nodes(complete, 'or')} {'has' if alone else 'need return: each has'}"
    said += f" all that was acknowledged in {place}: {who}."
    return f"{said} {_way_out(image, now, place)}"


def complete_replicas(now: PartitionState) -> tuple[BrokerId, ...]:
    """Those that have all that was acknowledged: in sync, or eligible to lead (KIP-966)."""
    return (*now.isr, *(each for each in now.elr if each not in now.isr))


def living_replicas(image: ClusterImage, now: PartitionState) -> tuple[BrokerId, ...]:
    """Those that can lead: whose log failed can't, though its node lives."""
    return tuple(
        each for each in now.replicas if _is_alive(image, each) and each not in now.offline
    )


def empty_replicas(image: ClusterImage, now: PartitionState) -> tuple[BrokerId, ...]:
    """Those that can begin anew, if the disk that they had is lost and they have another one, and nobody else had
    everything; seen from afar it may also be the same disk, which failed: then the cluster refuses it."""
    found = tuple(each for each in now.replicas if _is_alive(image, each) and each in now.offline)
    return found if set(complete_replicas(now)).issubset(found) else ()


def what_is_lost(image: ClusterImage, place: TopicPartition, heir: BrokerId) -> str:
    """What it means to have this replica lead, though it may lack something."""
    now = image.partition(*place)
    assert now is not None
    if heir in now.offline:
        return (
            f"All that was acknowledged in {place} would be gone for good: node {heir} begins it anew on the"
            " disk that it has now."
        )
    said = (
        f"What was acknowledged in {place} after node {heir} was last in sync would be gone for good, and"
        f" {_nodes(complete_replicas(now), 'and')} would drop it too when back."
    )
    if heir in now.adding:
        said += f" Node {heir} was only being added: it may have nothing at all."
    return said


def _way_out(image: ClusterImage, now: PartitionState, place: TopicPartition) -> str:
    complete = complete_replicas(now)
    mend = [each for each in complete if each in now.offline and _is_alive(image, each)]
    down = [each for each in complete if each not in mend]
    start = f"Start {_nodes(down, 'or')}." if down else ""
    if mend:
        change = any(image.brokers[each].waits_for_disk != NO_DISK for each in mend)
        act = "Give back the disk" if change else "Mend the disk"
        start += f"{' ' if down else ''}{act} of {_nodes(mend, 'or')} and start it again."
    living = living_replicas(image, now)
    if any(each in complete for each in living):
        return "It is alive: the controller makes it the leader."
    recover = f"`fencepost partition recover {place.topic} {place.partition} --accept-data-loss`"
    if not living:
        return f"{start} {_anew(image, now, place.topic, recover)}"
    return (
        f"{start} {_nodes(living, 'and').capitalize()} {'is' if len(living) == 1 else 'are'} alive and may"
        f" lack some of it. If the others never return: {recover}."
    )


def _anew(image: ClusterImage, now: PartitionState, topic: str, recover: str) -> str:
    anew = empty_replicas(image, now)
    if not anew:
        return f"No replica is alive. {_from_nothing(image, now, topic, recover)}"
    said = "If that disk is lost for good"
    others = [each for each in now.replicas if each not in anew]
    if others:
        said += f", start {_nodes(others, 'or')}, which may have much of it, and recover then. If that is lost, too"
        recover = f"{recover[:-1]} --replica {anew[0]}`"
    return f"{said}, and {_nodes(anew, 'or')} has another disk: {recover}; all that was in the partition is gone then."


def _from_nothing(image: ClusterImage, now: PartitionState, topic: str, recover: str) -> str:
    """The way out when those are gone who have everything. Whoever comes with an empty folder has nothing for certain."""
    complete = complete_replicas(now)
    gone = [each for each in complete if not _is_alive(image, each)] or list(complete)
    others = [each for each in now.replicas if each not in complete]
    said = f"If {_nodes(gone, 'and')} {'is' if len(gone) == 1 else 'are'} gone for good, "
    if others:
        lost = "that is gone" if len(others) == 1 else "those are gone"
        said += f"start {_nodes(others, 'or')}, which may have much of it, and recover then: {recover}. If {lost}, too, "
    said += f"start node {gone[0]} with an empty folder and recover then: {recover[:-1]} --replica {gone[0]}`"
    return (
        f"{said}." if topic in INTERNAL_TOPICS else f"{said}, or `fencepost topic delete {topic}`."
    )


def _role(now: PartitionState, broker_id: BrokerId) -> str:
    return f"node {broker_id} ({'in sync' if broker_id in now.isr else 'eligible'})"


def _condition(image: ClusterImage, now: PartitionState, broker_id: BrokerId) -> str:
    state = _state(image, broker_id)
    if broker_id in now.offline and state == ALIVE:
        disk = image.brokers[broker_id].waits_for_disk
        if disk != NO_DISK:
            return f"is alive, but with another disk than the one that has it ({LOST_DISK}{disk})"
        return "is alive, but its log of this partition failed"
    return state


def _state(image: ClusterImage, broker_id: BrokerId) -> str:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "is not registered"
    if broker.fenced:
        return "is not running, or can't be reached"
    return "is shutting down" if broker.in_controlled_shutdown else ALIVE


def _is_alive(image: ClusterImage, broker_id: BrokerId) -> bool:
    return _state(image, broker_id) == ALIVE


def _nodes(broker_ids: Sequence[BrokerId], last: str) -> str:
    names = [str(each) for each in broker_ids]
    if len(names) == 1:
        return f"node {names[0]}"
    return f"nodes {', '.join(names[:-1])} {last} {names[-1]}"
