"""What a lower `min.insync.replicas` means for who is eligible to lead (KIP-966).

INVARIANT  a replica is in the ELR only while nothing can have been committed since it left the ISR, by the minimum
           that is in force now.
PREVENTS   a minimum lowered from 2 to 1 while the ISR is one replica: that commits alone from then on, and one
           that left before is elected without what was committed since.
PROVED BY  tests/cluster/controller/test_min_isr_policy.py::test_nobody_stays_eligible_when_the_isr_is_enough

The records that lower it hold the next state of every partition that it is for, changed or not: whatever was
decided for one of them on the old minimum is refused by its partition epoch, and decided anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from ..metadata.image import BROKER_DEFAULT, ConfigType, PartitionState, TopicState
from ..metadata.records import ConfigsChanged, PartitionChange, PartitionsChanged
from .decision import Scene
from .election_policy import as_it_is, records_of

MIN_ISR: Final = "min.insync.replicas"


def of_new_cluster(scene: Scene) -> ConfigsChanged:
    """The minimum for all brokers, as Kafka sets it by itself: files of nodes that differ must not decide it."""
    least = scene.settings.integer(MIN_ISR)
    return ConfigsChanged(
        resource_type=ConfigType.BROKER, name=BROKER_DEFAULT, changes={MIN_ISR: str(least)}
    )


def no_longer_eligible(scene: Scene, records: Sequence[ConfigsChanged]) -> list[PartitionsChanged]:
    """What goes with these changes of settings, in one batch."""
    default, new_default = _defaults(scene, records)
    set_now = {
        record.name: record for record in records if record.resource_type is ConfigType.TOPIC
    }
    touched: list[TopicState] = []
    lowered: dict[UUID, int] = {}
    for topic in _concerned(scene, set_now, all_of_them=new_default < default):
        before = _least(scene.image.config(ConfigType.TOPIC, topic.name).get(MIN_ISR), default)
        change = set_now.get(topic.name)
        after = _least(scene.image.config(ConfigType.TOPIC, topic.name).get(MIN_ISR), new_default)
        if change is not None and MIN_ISR in change.changes:
            after = _least(change.changes[MIN_ISR], new_default)
        if after < before:
            lowered[topic.topic_id] = after
            touched.append(topic)
    return records_of(
        [
            (topic, _next(now, lowered[topic.topic_id]))
            for topic in touched
            for now in topic.partitions
        ]
    )


def _defaults(scene: Scene, records: Sequence[ConfigsChanged]) -> tuple[int, int]:
    default = scene.settings.integer(MIN_ISR)
    for record in records:
        is_for_all = (record.resource_type, record.name) == (ConfigType.BROKER, BROKER_DEFAULT)
        if is_for_all and MIN_ISR in record.changes:
            return default, _least(record.changes[MIN_ISR], default)
    return default, default


def _least(text: str | None, default: int) -> int:
    return default if text is None else int(text)


def _concerned(
    scene: Scene, set_now: dict[str, ConfigsChanged], *, all_of_them: bool
) -> Iterable[TopicState]:
    names = sorted(scene.image.topics) if all_of_them else sorted(set_now)
    return [scene.image.topics[name] for name in names if name in scene.image.topics]


def _next(now: PartitionState, min_isr: int) -> PartitionChange:
    enough = len(now.isr) >= min(min_isr, len(now.original_replicas))
    change = as_it_is(now)
    return replace(change, elr=()) if enough else change
