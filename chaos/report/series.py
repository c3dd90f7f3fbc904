"""Figures over time in bounded memory: when a run is longer than the bins that there are, two bins become one.

INVARIANT  no series holds more than its bins, however long the history is.
PREVENTS   a report that needs the memory of the run that it reports.
PROVED BY  tests/chaos/test_report_series.py::test_a_run_of_any_length_has_as_many_bins_as_a_short_one
"""

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

BINS_MAX: Final = 480  # about two pixels each on a wide page
BIN_S: Final = 0.5
LATENCY_MS_MIN: Final = 0.1
LATENCY_STEP: Final = 1.1  # what is told of a latency is right to a tenth
LEVELS: Final = 170  # up to 18 minutes
CELLS_MAX: Final = 1 << 16
CELL_S: Final = 0.1
STOP_S: Final = (
    1.0  # who begins a write so long after the last acknowledgement has not been told to stop
)
START_S: Final = 5.0  # clients that begin may take so long until their first acknowledgement
COUNTED: Final = ("acknowledged", "read", "fail", "info")
_LOG_STEP: Final = math.log(LATENCY_STEP)


@dataclass(slots=True)
class Bin:
    """What fell into one stretch of time."""

    acknowledged: int = 0  # records
    read: int = 0
    fail: int = 0  # operations
    info: int = 0
    latencies: "array[int] | None" = None  # how many of each level

    def add_latency(self, latency_ms: float) -> None:
        if self.latencies is None:
            self.latencies = array("L", [0]) * LEVELS
        self.latencies[level_of(latency_ms)] += 1

    def join(self, other: "Bin") -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if self.latencies is None:
            self.latencies = other.latencies
        elif other.latencies is not None:
            for level, count in enumerate(other.latencies):
                self.latencies[level] += count

    def quantile_ms(self, part: float) -> float | None:
        return quantile_ms(self.latencies, part)


def level_of(latency_ms: float) -> int:
    if latency_ms <= LATENCY_MS_MIN:
        return 0
    return min(LEVELS - 1, int(math.log(latency_ms / LATENCY_MS_MIN) / _LOG_STEP) + 1)


def quantile_ms(levels: "array[int] | None", part: float) -> float | None:
    """The middle of the level that this part of all stays below."""
    if levels is None or not (total := sum(levels)):
        return None
    wanted, seen = max(1, math.ceil(part * total)), 0
    for level, count in enumerate(levels):
        seen += count
        if seen >= wanted:
            return LATENCY_MS_MIN * LATENCY_STEP ** (level - 0.5 if level else 0)
    raise AssertionError("a quantile beyond all of them")


@dataclass(slots=True)
class Series:
    """Bins from second 0 on, of equal width."""

    width_s: float = BIN_S
    bins: list[Bin] = field(default_factory=list)

    def at(self, second: float) -> Bin:
        index = max(0, int(second / self.width_s))
        while index >= BINS_MAX:
            self._halve()
            index = max(0, int(second / self.width_s))
        while len(self.bins) <= index:
            self.bins.append(Bin())
        return self.bins[index]

    def _halve(self) -> None:
        self.width_s *= 2
        pairs = [self.bins[at : at + 2] for at in range(0, len(self.bins), 2)]
        for pair in pairs:
            for other in pair[1:]:
                pair[0].join(other)
        self.bins = [pair[0] for pair in pairs]

    def a_second(self, name: str) -> list[float]:
        return [getattr(each, name) / self.width_s for each in self.bins]


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """A stretch in which nothing was acknowledged. One that is open never ended."""

    from_s: float
    to_s: float
    is_open: bool = False

    @property
    def seconds(self) -> float:
        return self.to_s - self.from_s


class Acknowledgements:
    """When something was acknowledged: of each cell of time the first moment and the last, so that gaps are exact.

    Histories are only nearly in the order of time; cells do not mind.
    """

    def __init__(self) -> None:
        self.cell_s = CELL_S
        self._first = array("d")
        self._last = array("d")
        self._tried_began_s = 0.0  # the last write that anybody began
        self._tried_ended_s = 0.0  # and that ended, whatever became of it

    def add(self, second: float) -> None:
        index = int(second / self.cell_s)
        while index >= CELLS_MAX:
            self._halve()
            index = int(second / self.cell_s)
        missing = index + 1 - len(self._first)
        if missing > 0:
            self._first.extend([math.inf] * missing)
            self._last.extend([-math.inf] * missing)
        self._first[index] = min(self._first[index], second)
        self._last[index] = max(self._last[index], second)

    def _halve(self) -> None:
        self.cell_s *= 2
        if len(self._first) % 2:
            self._first.append(math.inf)
            self._last.append(-math.inf)
        self._first = array("d", map(min, self._first[::2], self._first[1::2]))
        self._last = array("d", map(max, self._last[::2], self._last[1::2]))

    @property
    def first_s(self) -> float | None:
        return next((each for each in self._first if each < math.inf), None)

    @property
    def last_s(self) -> float | None:
        return self._last[-1] if self._last else None

    def tried(self, began_s: float, ended_s: float) -> None:
        """Somebody wrote, whatever became of it."""
        self._tried_began_s = max(self._tried_began_s, began_s)
        self._tried_ended_s = max(self._tried_ended_s, ended_s)

    @property
    def until_s(self) -> float:
        """The last moment that counts. A write that was under way when all were told to stop says nothing: its end is
        when somebody looked. One that was begun a while after the last acknowledgement does."""
        last = self.last_s or 0.0
        went_on = self._tried_began_s > last + STOP_S
        return max(last, self._tried_ended_s) if went_on else last

    def gaps(self, longer_than_s: float) -> Iterator[Gap]:
        """In the order of time; none shorter than a cell is seen. One at the end counts while somebody tried."""
        before: float | None = None
        if self.first_s is not None and self.first_s > max(longer_than_s, START_S):
            yield Gap(0.0, self.first_s)
        for first, last in zip(self._first, self._last, strict=True):
            if first == math.inf:
                continue
            if before is not None and first - before > longer_than_s:
                yield Gap(before, first)
            before = last
        if before is not None and self.until_s - before > longer_than_s:
            yield Gap(before, self.until_s, is_open=True)

    def longest_within(self, from_s: float, to_s: float) -> float:
        """The longest time without an acknowledgement between these two, and no longer than somebody tried."""
        to_s = min(to_s, self.until_s)
        index, before, longest = max(0, int(from_s / self.cell_s)), from_s, 0.0
        index = self._after_silence(index)
        while index < len(self._first) and self._first[index] < to_s:
            if self._last[index] > from_s:
                longest = max(longest, self._first[index] - before)
                before = min(self._last[index], to_s)
            index = self._after_silence(index + 1)
        return max(longest, to_s - before)

    def _after_silence(self, index: int) -> int:
        while index < len(self._first) and self._first[index] == math.inf:
            index += 1
        return index
