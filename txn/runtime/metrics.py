"""What coordinators of either kind count, and what Prometheus calls it."""

from typing import Final

from fencepost.cluster.base.metrics import Histogram, counter, gauge, histogram


class CoordinatorCounters:
    """Of one kind of coordinator on one node."""

    __slots__ = ("load_failures", "load_s", "lost")

    def __init__(self) -> None:
        self.load_s = Histogram()
        self.load_failures = 0
        self.lost = 0


PARTITIONS: Final = gauge(
    "fencepost_coordinator_partitions",
    "Of group and transaction coordinators here: active, loading, failed.",
    "coordinator",
    "state",
)
LOAD: Final = histogram(
    "fencepost_coordinator_load_seconds", "How long it took to load one.", "coordinator"
)
LOAD_FAILURES: Final = counter(
    "fencepost_coordinator_load_failures_total", "Loads that have to be done again.", "coordinator"
)
LOST: Final = counter(
    "fencepost_coordinator_lost_total",
    "Coordinators that had to be built anew from their log.",
    "coordinator",
)
