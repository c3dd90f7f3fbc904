"""The state machine of the metadata log: entries in, one image out, the same on every node.

INVARIANT  equal entries make equal images; an entry whose preconditions do not hold changes nothing, anywhere.
PREVENTS   a controller that was deposed while it decided, and whose decision arrives all the same.
PROVED BY  tests/cluster/metadata/test_metadata_machine.py::test_a_refused_batch_changes_nothing

`apply` is total: a refusal is a value. The only exception it knows is CommandUnreadable, which ends the
process: pysyncobj would try a raising method again for ever (style §2.4).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import brokers, configs, records, topics
from .codec import Command, decode
from .image import ClusterImage, ImageDelta, ImageListener
from .refusal import Reason, Refused
from .snapshot import read_image, take_up, write_snapshot


@dataclass(frozen=True, slots=True)
class Applied:
    """`version` of the image that this entry made; the epoch of a broker that it registered."""

    version: int


Result = Applied | Refused


@dataclass(frozen=True, slots=True)
class _Rule:
    """`touched`: what no other command of the batch may touch, as all are checked before any is applied."""

    touched: Callable[[Any], Iterator[Hashable]]
    why_not: Callable[[ClusterImage, Any], Refused | None]
    apply: Callable[[ClusterImage, Any, ImageDelta], None]


RULES: Final[Mapping[type[Command], _Rule]] = {
    records.ClusterFormed: _Rule(
        brokers.touched_by_cluster_formed,
        brokers.why_not_cluster_formed,
        brokers.apply_cluster_formed,
    ),
    records.BrokerRegistered: _Rule(
        brokers.touched_by_broker_registered,
        brokers.why_not_broker_registered,
        brokers.apply_broker_registered,
    ),
    records.BrokerChanged: _Rule(
        brokers.touched_by_broker_changed,
        brokers.why_not_broker_changed,
        brokers.apply_broker_changed,
    ),
    records.BrokerUnregistered: _Rule(
        brokers.touched_by_broker_unregistered,
        brokers.why_not_broker_unregistered,
        brokers.apply_broker_unregistered,
    ),
    records.TopicCreated: _Rule(
        topics.touched_by_topic_created,
        topics.why_not_topic_created,
        topics.apply_topic_created,
    ),
    records.TopicDeleted: _Rule(
        topics.touched_by_topic_deleted,
        topics.why_not_topic_deleted,
        topics.apply_topic_deleted,
    ),
    records.PartitionsCreated: _Rule(
        topics.touched_by_partitions_created,
        topics.why_not_partitions_created,
        topics.apply_partitions_created,
    ),
    records.PartitionsChanged: _Rule(
        topics.touched_by_partitions_changed,
        topics.why_not_partitions_changed,
        topics.apply_partitions_changed,
    ),
    records.ConfigsChanged: _Rule(
        configs.touched_by_configs_changed,
        configs.why_not_configs_changed,
        configs.apply_configs_changed,
    ),
    records.FeatureChanged: _Rule(
        brokers.touched_by_feature_changed,
        brokers.why_not_feature_changed,
        brokers.apply_feature_changed,
    ),
    records.ImageExpected: _Rule(
        brokers.touched_by_image_expected,
        brokers.why_not_image_expected,
        brokers.apply_image_expected,
    ),
    records.ProducerIdsAllocated: _Rule(
        brokers.touched_by_producer_ids,
        brokers.why_not_producer_ids,
        brokers.apply_producer_ids,
    ),
}


class MetadataMachine:
    """`image` is what all entries so far add up to; `listeners` hear of each applied entry."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.listeners: list[ImageListener] = []

    def apply(self, entry: bytes) -> Result:
        """One batch, whole or not at all. CommandUnreadable ends the process."""
        return self.apply_batch(decode(entry))

    def apply_batch(self, commands: list[Command]) -> Result:
        """The same for commands that were read already."""
        refused = self.why_not(commands)
        if refused is not None:
            return refused
        delta = ImageDelta(self.image)
        self.image.version += 1
        for command in commands:
            RULES[type(command)].apply(self.image, command, delta)
        self._tell(delta)
        return Applied(self.image.version)

    def why_not(self, commands: list[Command]) -> Refused | None:
        """The reason why this batch would be refused now: the controller asks it before it proposes."""
        if not commands:
            return Refused(Reason.IMPOSSIBLE, "A batch without commands.")
        touched: set[Hashable] = set()
        for command in commands:
            rule = RULES[type(command)]
            for key in rule.touched(command):
                if key in touched:
                    return Refused(Reason.TWICE_IN_BATCH, f"Two commands of a batch touch {key}.")
                touched.add(key)
            refused = rule.why_not(self.image, command)
            if refused is not None:
                return refused
        return None

    def snapshot(self) -> bytes:
        """The image as bytes: equal images give equal bytes."""
        return write_snapshot(self.image)

    def restore(self, snapshot: bytes) -> None:
        """Become the image of a snapshot; `image` stays the same object. SnapshotUnreadable ends the process."""
        self.become(read_image(snapshot))

    def become(self, new: ClusterImage) -> None:
        self._tell(take_up(new, self.image))

    def _tell(self, delta: ImageDelta) -> None:
        for listener in self.listeners:
            listener.on_image(delta)
