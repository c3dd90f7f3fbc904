"""What becomes of requests to elect leaders: preferred ones, and the one unclean election that there is.

INVARIANT  a leader without all that was committed is elected only because a person asked for this partition's
           (or every offline partition's) unclean election: never by a setting, a timer or a broker.
PREVENTS   acknowledged records that are gone because nobody was looking.
PROVED BY  tests/cluster/controller/test_elect_policy.py::test_an_unclean_election_is_made_only_when_asked_for
"""

from collections.abc import Iterator
from typing import Final

from ..base.errors import ErrorCode
from ..base.ids import NO_LEADER
from ..metadata.image import NO_DISK, PartitionState, TopicState
from ..metadata.records import PartitionChange
from .commands import ElectionResult, ElectionType, ElectLeaders
from .decision import CommandRefused, Decision, Scene
from .election_policy import Wish, changed, records_of
from .placement_policy import active_brokers

NOT_NEEDED: Final = "Leader election not needed for topic partition."
NO_PREFERRED: Final = "The preferred leader was not available."
NO_ELIGIBLE: Final = "Eligible topic partition leaders are not available."


def decide_elect_leaders(scene: Scene, command: ElectLeaders) -> Decision[list[ElectionResult]]:
    results: list[ElectionResult] = []
    changes: list[tuple[TopicState, PartitionChange]] = []
    wish = _wish(scene, command)
    for topic_name, index in _asked(scene, command):
        code, message = ErrorCode.none, None
        try:
            changes.append(_elected(scene, wish, topic_name, index))
        except CommandRefused as refused:
            code, message = refused.error_code, refused.message
            if command.partitions is None and code is ErrorCode.election_not_needed:
                continue
        results.append(
            ElectionResult(
                topic=topic_name, partition=index, error_code=code, error_message=message
            )
        )
    return Decision(
        records=list(records_of(changes)),
        reply=lambda _version: results,
        too_large=lambda refused: [
            ElectionResult(
                topic=each.topic,
                partition=each.partition,
                error_code=refused.error_code,
                error_message=refused.message,
            )
            for each in results
        ],
    )


def _asked(scene: Scene, command: ElectLeaders) -> Iterator[tuple[str, int]]:
    if command.partitions is None:
        yield from scene.image.topic_partitions()
    else:
        yield from dict.fromkeys(command.partitions)


def _elected(
    scene: Scene, wish: Wish, topic_name: str, index: int
) -> tuple[TopicState, PartitionChange]:
    topic = scene.image.topics.get(topic_name)
    now = scene.image.partition(topic_name, index)
    if topic is None:
        why = f"No such topic as {topic_name}"
        raise CommandRefused(ErrorCode.unknown_topic_or_partition, why)
    if now is None:
        why = f"No such partition as {topic_name}-{index}"
        raise CommandRefused(ErrorCode.unknown_topic_or_partition, why)
    if _is_needless(wish, now):
        raise CommandRefused(ErrorCode.election_not_needed, NOT_NEEDED)
    alive = active_brokers(scene.image)
    change = changed(
        now,
        wish,
        alive=alive - (scene.disks.full - {now.leader}) if wish.preferred else alive,
        disks=scene.disks,
        min_isr=scene.min_insync_replicas(topic.name, now),
    )
    if change is not None and change.leader not in (now.leader, NO_LEADER):
        return topic, change
    if wish.preferred:
        raise CommandRefused(ErrorCode.preferred_leader_not_available, NO_PREFERRED)
    raise CommandRefused(ErrorCode.eligible_leaders_not_available, NO_ELIGIBLE)


def _wish(scene: Scene, command: ElectLeaders) -> Wish:
    if command.election is ElectionType.PREFERRED:
        return Wish(preferred=True)
    waiting = (each for each in scene.image.brokers.values() if each.waits_for_disk != NO_DISK)
    return Wish(
        unclean=True,
        on_other_disks=frozenset(each.broker_id for each in waiting),
        anew=command.partitions is not None,  # to begin a partition anew it has to be named
    )


def _is_needless(wish: Wish, now: PartitionState) -> bool:
    if wish.preferred:
        return now.leader == now.replicas[0]
    return now.leader != NO_LEADER
