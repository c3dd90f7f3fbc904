"""Leaders go back to the first of their replicas, so that a node that was away gets its share again.

A tick elects at most so many: clients of a moved leader ask anew where it is, and they need not all do so at
once. As in Kafka 4.3 there is no percentage of imbalance to wait for. Whether and how often is
`auto.leader.rebalance.enable` and `leader.imbalance.check.interval.seconds`.
"""

from typing import Final

from ..metadata.image import TopicState
from ..metadata.records import PartitionChange
from .decision import Decision, Scene
from .election_policy import Wish, changed, records_of
from .placement_policy import active_brokers

ELECTIONS_PER_TICK_MAX: Final = (
    1000  # Kafka's ReplicationControlManager.MAX_ELECTIONS_PER_IMBALANCE
)


class LeaderBalance:
    """`decide_tick`, but once in the interval, however often it is called."""

    def __init__(self) -> None:
        self._next_ms = 0

    def decide_tick(self, scene: Scene) -> Decision[None]:
        """The interval begins when nothing is left to do: a decision that was refused is made again."""
        interval_ms = scene.settings.integer("leader.imbalance.check.interval.seconds") * 1000
        wait_ms = self._next_ms - scene.now_ms
        is_early = 0 < wait_ms <= interval_ms  # more than that: the clock was set back
        if is_early or not scene.disks.all_heard:
            return Decision(reply=lambda _version: None)
        decision = decide_tick(scene)
        if not decision.records:
            self._next_ms = scene.now_ms + interval_ms
        return decision


def decide_tick(scene: Scene) -> Decision[None]:
    """The next so many leaders that can go back."""
    changes: list[tuple[TopicState, PartitionChange]] = []
    if not scene.settings.of("auto.leader.rebalance.enable"):
        return Decision(reply=lambda _version: None)
    alive = active_brokers(scene.image) - scene.disks.full - scene.disks.lately_full
    for name in sorted(scene.image.topics):
        topic = scene.image.topics[name]
        for now in topic.partitions:
            first = now.replicas[0]
            if now.leader == first or first not in now.isr or first not in alive:
                continue
            if len(changes) >= ELECTIONS_PER_TICK_MAX:
                break
            min_isr = scene.min_insync_replicas(name, now)
            change = changed(now, Wish(preferred=True), alive=alive, min_isr=min_isr)
            if change is not None:
                changes.append((topic, change))
    return Decision(records=list(records_of(changes)), reply=lambda _version: None)
