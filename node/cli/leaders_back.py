"""Leaders that go back: a partition that is led by another than the first of its replicas, though that one is in sync.

Plans know the order of replicas, not who leads: nodes may be even by their plan, and one of them does all the work.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fencepost.cluster.base.ids import NO_LEADER, BrokerId
from fencepost.cluster.metadata.image import ClusterImage

from .cluster import say
from .moving import elect_preferred
from .throttling import Key
from .wire import Wire


class Back(NamedTuple):
    topic: str
    partition: int
    leader: int
    to: int


def who_goes_back(image: ClusterImage, moved: Collection[Key]) -> list[Back]:
    """But for what is moved: its leader is chosen when it has arrived."""
    alive = {broker.broker_id for broker in image.alive_brokers()}
    return [
        Back(topic.name, each.partition, each.leader, first)
        for topic in image.topics.values()
        for each in topic.partitions
        if each.leader not in (NO_LEADER, first := BrokerId(each.replicas[0]))
        and first in each.isr
        and first in alive
        and (topic.name, each.partition) not in moved
    ]


def go_back(wire: Wire, leaders: Sequence[Back]) -> list[Back]:
    """Those that did; of the others it is said why not."""
    if not leaders:
        return []
    refused = elect_preferred(wire, [(each.topic, each.partition) for each in leaders])
    for each in leaders:
        if (why := refused.get((each.topic, each.partition))) is not None:
            say(f"{each.topic}-{each.partition} is led by node {each.leader} still: {why}")
    return [each for each in leaders if (each.topic, each.partition) not in refused]


def leaders_of(count: int) -> str:
    return f"{count} leader{'' if count == 1 else 's'}"
