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


def decide_tick(scene: Scene) -> Decision[None]:
    """Called once in `interval_s`."""
    changes: list[tuple[TopicState, PartitionChange]] = []
    if not scene.settings.of("auto.leader.rebalance.enable"):
        return Decision(reply=lambda _version: None)
    alive = active_brokers(scene.image)
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


def interval_s(scene: Scene) -> int:
    return scene.settings.integer("leader.imbalance.check.interval.seconds")
