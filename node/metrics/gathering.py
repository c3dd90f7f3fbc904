"""One scrape: what each part of the node said, and the turns of the loop that asking took.

INVARIANT  asking keeps the loop for `TURN_S` at a time and one more step; a metric that is declared is there, with or
           without a value.
PREVENTS   a scrape that holds up writes; a rule that waits for ever for a metric of another name.
PROVED BY  tests/node/test_metrics_scrape.py::test_a_scrape_lets_others_run_between_its_steps
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar

from fencepost.cluster.base.metrics import Declared, Histogram, Kind
from fencepost.cluster.base.ports import Clock
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

TURN_S: Final = 0.002
CHUNK: Final = 250  # samples of one metric in one piece of text
Value = float | Histogram
T = TypeVar("T")


class Gathering:
    """`put` what there is; `breathe` between two steps."""

    def __init__(self, clock: Clock, turns: Histogram) -> None:
        self._clock = clock
        self._turns = turns
        self._began = clock.steady()
        self.values: dict[Declared, list[tuple[tuple[str, ...], Value]]] = {}

    def put(self, metric: Declared, value: Value, *labels: str) -> None:
        assert len(labels) == len(metric.labels), f"{metric.name} has the labels {metric.labels}"
        taken = value.copy() if isinstance(value, Histogram) else value
        self.values.setdefault(metric, []).append((labels, taken))

    async def breathe(self) -> None:
        if self._clock.steady() - self._began >= TURN_S:
            await self.wait(self._clock.sleep(0))

    async def wait(self, what: Awaitable[T]) -> T:
        """For something that takes its time elsewhere: the loop is free meanwhile."""
        self.end()
        found = await what
        self._began = self._clock.steady()
        return found

    def end(self) -> None:
        self._turns.observe(self._clock.steady() - self._began)


Source = Callable[[Gathering], Awaitable[None]]


def families(declared: Iterable[Declared], gathering: Gathering) -> Iterator[tuple[Metric, bool]]:
    """In the order in which they are declared, in pieces; False for a piece that goes on where the last one ended."""
    for metric in declared:
        samples = gathering.values.get(metric, [])
        for start in range(0, max(1, len(samples)), CHUNK):
            family = _family(metric)
            for labels, value in samples[start : start + CHUNK]:
                _add(family, labels, value)
            yield family, start == 0


def _family(metric: Declared) -> Metric:
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def _add(family: Metric, labels: tuple[str, ...], value: Value) -> None:
    if isinstance(value, Histogram):
        assert isinstance(family, HistogramMetricFamily), family.name
        family.add_metric(labels, _buckets(value), value.total)
    else:
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily), family.name
        family.add_metric(labels, value)


def _buckets(value: Histogram) -> list[tuple[str, float]]:
    """Prometheus' are cumulative."""
    found, below = [], 0
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
        below += count
        name = floatToGoString(bound)  # type: ignore[no-untyped-call]
        found.append((name, float(below)))
    return found
