"""What a decision of the controller changed, as lines of the log, each with its cause.

INVARIANT  each election, change of an in-sync set, step of a move and fencing that the controller decides is one line
           on the node that decided it, and a decision about many partitions is a bounded number of them.
PREVENTS   a night's outage of which nobody can say who died, who led then, and who asked for it.
PROVED BY  tests/cluster/controller/test_told.py::test_a_fenced_broker_and_what_becomes_of_its_partitions_are_told_with_the_cause

It is computed before the proposal, on the image that the decision was made on, and said once the log has taken it.
In-sync sets that a leader asked to change are told by that leader, who knows who lagged by how much
(`replication/isr_shell.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..base.ids import NO_LEADER, BrokerId
from ..base.ports import Log
from ..metadata import levels
from ..metadata.codec import Command
from ..metadata.image import ClusterImage, PartitionState, TopicState
from ..metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    PartitionChange,
    PartitionsChanged,
    TopicCreated,
    TopicDeleted,
)
from .commands import (
    AlterPartition,
    AlterReassignments,
    AutoCreateTopics,
    BrokerHeartbeat,
    ControllerCommand,
    CreateTopics,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    RegisterBroker,
    ReportDisk,
    UnregisterBroker,
)
from .election_policy import is_unclean

# Partitions of one decision that are told one by one.
EACH_MAX: Final = 50


class Line(NamedTuple):
    level: str
    event: str
    fields: dict[str, object]


# --- who asked ----------------------------------------------------------------------------------


def _of_heartbeat(command: BrokerHeartbeat) -> str:
    if command.failed:
        return f"{len(command.failed)} log(s) on node {command.broker_id} failed"
    return "it asked to go" if command.want_shut_down else "it has caught up with the metadata"


def _of_registration(command: RegisterBroker) -> str:
    if command.lacking == ():
        return "it has all that it had acknowledged"
    return "its machine went down, so it may lack what was not synced"


def _of_election(command: ElectLeaders) -> str:
    if command.election is ElectionType.UNCLEAN:
        return "an admin gave up what nobody who is alive has"
    return "an admin asked for the preferred leader"


_CAUSES: Final[Mapping[type[Any], Callable[[Any], str]]] = {
    AlterPartition: lambda command: f"node {command.broker_id}, which leads it, asked for it",
    AlterReassignments: lambda _: "an admin asked for it",
    AutoCreateTopics: lambda _: "it was used and was not there",
    BrokerHeartbeat: _of_heartbeat,
    CreateTopics: lambda _: "an admin asked for it",
    DeleteTopics: lambda _: "an admin asked for it",
    ElectLeaders: _of_election,
    RegisterBroker: _of_registration,
    ReportDisk: lambda command: f"the disk of node {command.broker_id} is full",
    UnregisterBroker: lambda _: "an admin asked for it",
}
# Of what nobody asked for.
OF_DUTIES: Final[Mapping[str, str]] = {
    "finish moves": "the replicas that it moves to are in sync",
    "balance leaders": "its preferred replica is in sync again",
}


def cause_of(command: ControllerCommand[Any]) -> str:
    cause = _CAUSES.get(type(command))
    return type(command).__name__ if cause is None else cause(command)


# --- what changed -------------------------------------------------------------------------------


def lines_of(
    image: ClusterImage, records: Sequence[Command], cause: str, *, leader_tells: bool = False
) -> list[Line]:
    """`leader_tells`: a leader asked for these in-sync sets, and says so itself."""
    lines: list[Line] = []
    changes: list[tuple[TopicState, PartitionState, PartitionChange]] = []
    of_partitions, asked = cause, False
    for record in records:
        match record:
            case BrokerChanged() | BrokerRegistered() | BrokerUnregistered():
                line, of_partitions = _of_broker(image, record, cause)
                asked |= line is not None and line.event == "broker_leaving"
                lines += [line] if line is not None else []
            case TopicCreated():
                count = len(record.partitions)
                fields = {"topic": record.name, "partitions": count, "cause": cause}
                lines.append(Line("info", "topic_created", fields))
            case TopicDeleted():
                gone = image.topics_by_id[record.topic_id]
                lines.append(Line("info", "topic_deleted", {"topic": gone.name, "cause": cause}))
            case PartitionsChanged():
                topic = image.topics_by_id[record.topic_id]
                changes += [
                    (topic, topic.partitions[each.partition], each) for each in record.changes
                ]
            case _:
                pass
    lines += _of_level(image, records)
    lines += _of_partitions(changes, of_partitions, leader_tells=leader_tells)
    if asked:  # whoever stops a whole cluster need not be woken
        return [each._replace(level="warn") if each.level == "error" else each for each in lines]
    return lines


def _of_broker(
    image: ClusterImage, record: BrokerChanged | BrokerRegistered | BrokerUnregistered, cause: str
) -> tuple[Line | None, str]:
    """Its line, and what it is for the partitions that change because of it."""
    broker_id = record.broker_id
    fields: dict[str, object] = {"broker": broker_id, "cause": cause}
    if isinstance(record, BrokerRegistered):
        fields["broker_epoch"] = image.version + 1
        if broker_id not in image.brokers:
            fields["cause"] = "it is new here"
        return Line("info", "broker_came", fields), f"node {broker_id} registered anew: {cause}"
    if isinstance(record, BrokerUnregistered):
        why = f"node {broker_id} was taken off the list"
        return Line("info", "broker_unregistered", fields), why
    before = image.brokers[broker_id]
    if record.in_controlled_shutdown and not before.in_controlled_shutdown:
        return Line("info", "broker_leaving", fields), f"node {broker_id} is stopping"
    if record.fenced and not before.fenced:
        return Line("warn", "broker_fenced", fields), f"node {broker_id} is fenced: {cause}"
    if before.fenced and not record.fenced:
        return Line("info", "broker_unfenced", fields), f"node {broker_id} is back"
    return None, cause


def _of_level(image: ClusterImage, records: Sequence[Command]) -> Iterator[Line]:
    """Who has to be upgraded, or forgotten, before all that this build knows is written; told when that changes."""
    comings = [each for each in records if isinstance(each, BrokerRegistered | BrokerUnregistered)]
    if not comings:
        return
    after: dict[BrokerId, levels.Tells] = {**image.brokers}
    for record in comings:
        if isinstance(record, BrokerRegistered):
            after[record.broker_id] = record
        else:
            after.pop(record.broker_id, None)
    held = levels.held_by(after)
    if held != levels.held_by(image.brokers):
        why = "all nodes read it"
        if held:
            why = f"nodes {held} read no more; upgrade them, and `fencepost node forget` those that are gone for good"
        level, newest = levels.level_among(after), levels.reads()
        fields = {"level": level, "newest": newest, "held_by": held, "cause": why}
        yield Line("info", "metadata_level", fields)


def _of_partitions(
    changes: Sequence[tuple[TopicState, PartitionState, PartitionChange]],
    cause: str,
    *,
    leader_tells: bool,
) -> Iterator[Line]:
    said = too = leaderless = 0
    for topic, now, change in changes:
        if said >= EACH_MAX:
            too += 1
            leaderless += change.leader == NO_LEADER
            continue
        for line in _of_partition(topic.name, now, change, cause, leader_tells=leader_tells):
            said += 1
            yield line
    if too:
        fields = {"count": too, "without_leader": leaderless, "cause": cause}
        yield Line("warn" if leaderless else "info", "partitions_changed_too", fields)


def _of_partition(
    topic: str, now: PartitionState, change: PartitionChange, cause: str, *, leader_tells: bool
) -> Iterator[Line]:
    def line(level: str, event: str, **fields: object) -> Line:
        place: dict[str, object] = {"topic": topic, "partition": now.partition}
        return Line(level, event, {**place, **fields, "cause": cause})

    moves = bool(change.adding or change.removing)
    replicas = list(change.replicas)
    if moves and (change.adding, change.removing) != (now.adding, now.removing):
        yield line("info", "move_begun", before=list(now.original_replicas), replicas=replicas)
    elif now.is_moving and not moves:
        cancelled = any(each in change.replicas for each in now.removing)
        event = "move_cancelled" if cancelled else "move_done"
        yield line("info", event, before=list(now.replicas), replicas=replicas)
    lost = [each for each in change.offline if each not in now.offline]
    if lost:
        yield line("warn", "replica_offline", offline=lost)
    if change.leader_epoch != now.leader_epoch or change.leader != now.leader:
        yield _election(line, now, change)
    elif set(change.isr) != set(now.isr) and not leader_tells:
        yield line(
            "info", "isr_changed", before=list(now.isr), isr=list(change.isr), leader=change.leader
        )


def _election(line: Callable[..., Line], now: PartitionState, change: PartitionChange) -> Line:
    isr = list(change.isr)
    fields = {"leader_epoch": change.leader_epoch, "before": now.leader, "isr": isr}
    if change.leader == NO_LEADER:
        eligible = sorted({*change.isr, *change.elr})
        return line("error", "partition_without_leader", eligible=eligible, **fields)
    if is_unclean(now, change):
        return line("warn", "leader_elected_unclean", leader=change.leader, **fields)
    return line("info", "leader_elected", leader=change.leader, **fields)


def say(log: Log, lines: Sequence[Line]) -> None:
    for level, event, fields in lines:
        match level:
            case "error":
                log.error(event, **fields)
            case "warn":
                log.warn(event, **fields)
            case _:
                log.info(event, **fields)
