"""What counting is made of. Each folder has a `metrics.py` of these: what it counts, and what Prometheus calls it.

INVARIANT  to count is to add to an int: no lock, no clock, no object of a metrics library, nothing that can fail.
PREVENTS   metrics that cost more than what they measure, or that take a request down with them.
PROVED BY  tests/cluster/base/test_metrics.py::test_a_histogram_counts_as_a_plain_list_of_values_would

Numbers are read when somebody asks (`node/metrics`). Counters only ever rise while the process lives.
"""

import enum
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Declared(NamedTuple):
    """One metric: its whole name (a counter's ends in `_total`), and what it tells."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


def counter(name: str, meaning: str, *labels: str) -> Declared:
    assert name.endswith("_total"), name
    return Declared(name, Kind.COUNTER, meaning, labels)


def gauge(name: str, meaning: str, *labels: str) -> Declared:
    return Declared(name, Kind.GAUGE, meaning, labels)


def histogram(name: str, meaning: str, *labels: str) -> Declared:
    return Declared(name, Kind.HISTOGRAM, meaning, labels)


def declared_in(module: dict[str, Any]) -> Iterator[Declared]:
    """All that a `metrics.py` declares, in its order: `declared_in(vars(module))`."""
    for value in module.values():
        if isinstance(value, Declared):
            yield value


# Upper bounds in seconds, for what takes from half a millisecond to ten seconds.
LATENCY_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class Histogram:
    """How often a value fell at or below each bound and above the one before; the last place is for all above."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> "Histogram":
        """As it is now: what is read in several turns of the loop must not change meanwhile."""
        same = Histogram(self.bounds)
        same.counts, same.total = self.counts.copy(), self.total
        return same
