"""What the active controller counts, and what Prometheus calls it."""

from collections.abc import Iterable
from typing import Any, Final

from ..base.ids import NO_LEADER
from ..base.metrics import counter, gauge
from ..metadata.image import ClusterImage, PartitionState
from ..metadata.records import BrokerChanged, PartitionChange, PartitionsChanged
from .election_policy import is_unclean


class ControllerCounters:
    """Of one node, for as long as it was the active controller."""

    __slots__ = ("elections", "fencings", "unclean_elections")

    def __init__(self) -> None:
        self.elections = 0
        self.unclean_elections = 0
        self.fencings = 0

    def add(self, other: "ControllerCounters") -> None:
        self.elections += other.elections
        self.unclean_elections += other.unclean_elections
        self.fencings += other.fencings


def count(image: ClusterImage, records: Iterable[Any]) -> ControllerCounters:
    """What becomes of `image` by these records, which are not applied to it yet."""
    found = ControllerCounters()
    for record in records:
        match record:
            case BrokerChanged():
                now = image.brokers.get(record.broker_id)
                if now is not None and not now.fenced and not now.in_controlled_shutdown:
                    found.fencings += record.fenced  # it had not asked to go
            case PartitionsChanged():
                topic = image.topics_by_id.get(record.topic_id)
                for change in record.changes if topic is not None else ():
                    assert topic is not None
                    if change.partition < len(topic.partitions):
                        _count_election(found, topic.partitions[change.partition], change)
    return found


def _count_election(
    found: ControllerCounters, now: PartitionState, change: PartitionChange
) -> None:
    if change.leader in (NO_LEADER, now.leader):
        return
    found.elections += 1
    found.unclean_elections += is_unclean(now, change)


ACTIVE: Final = gauge(
    "fencepost_controller_active", "1 if this node is the active controller: one of all nodes is."
)
BROKERS: Final = gauge(
    "fencepost_cluster_brokers", "Brokers: active, fenced, stopping. By the controller.", "state"
)
TOPICS: Final = gauge("fencepost_cluster_topics", "Topics. By the controller.")
PARTITIONS: Final = gauge("fencepost_cluster_partitions", "Partitions. By the controller.")
OFFLINE: Final = gauge(
    "fencepost_offline_partitions", "Partitions without a leader. By the controller."
)
UNDER_REPLICATED: Final = gauge(
    "fencepost_cluster_under_replicated_partitions",
    "Partitions with a replica that is not in sync, with or without a leader. By the controller.",
)
NOT_PREFERRED: Final = gauge(
    "fencepost_not_preferred_leader_partitions",
    "Partitions led by another than their first replica. By the controller.",
)
REASSIGNING: Final = gauge(
    "fencepost_reassigning_partitions", "Partitions on the move. By the controller."
)
ELECTIONS: Final = counter(
    "fencepost_controller_elections_total", "Leaders that this node elected as controller."
)
UNCLEAN: Final = counter(
    "fencepost_controller_unclean_elections_total",
    "Of them: one that may lack committed records. Data was given up.",
)
FENCINGS: Final = counter(
    "fencepost_controller_fencings_total",
    "Brokers that this node, as controller, took out of service without their having asked to go.",
)
