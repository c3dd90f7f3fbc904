"""One pass over a run folder: what a page tells, in memory that does not grow with the run.

Operations are read in any of the two forms that histories have (`checkers/history.py`, `checkers/txn_history.py`): of
each only the fields that are named there are used. Times are seconds since the run began.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from ..checkers.away import STRUCK
from ..checkers.history import OPEN
from .leaders import Leaders
from .run_folder import (
    ANOMALIES,
    FAULTS,
    HISTORY,
    SEEN,
    JsonLines,
    Run,
    number_of,
    read_run,
    text_of,
    words_of,
)
from .series import LEVELS, Acknowledgements, Gap, Series, level_of, quantile_ms

GAP_S: Final = 1.0  # shorter ones are no gaps
GAPS_MAX: Final = 2_000
FAULTS_MAX: Final = 2_000
ANOMALIES_SHOWN_MAX: Final = 100
OF_ONE_NAME_MAX: Final = 20
OPERATIONS_SHOWN_MAX: Final = 400
TIME_MAX_S: Final = 90 * 86_400.0
AFTER_S: Final = 10.0  # behind the end of a fault: what comes then is still its doing
FINAL: Final = "final"
CRASH: Final = "crash"  # the end of a client: a line of the history, and no operation
KINDS: Final = ("ok", "fail", "info")


@dataclass(slots=True)
class Fault:
    id: str
    at_s: float
    until_s: float | None
    fault: str
    target: str
    nodes: tuple[str, ...]
    what: str
    gap_s: float | None = None  # the longest without an acknowledgement meanwhile
    builds: list[Any] = field(default_factory=list)  # who was started on which, as its line says it


@dataclass(slots=True)
class Anomaly:
    name: str
    key: str
    what: str
    lines: tuple[int, ...]
    is_allowed: bool


@dataclass(slots=True)
class Measured:
    run: Run
    series: Series = field(default_factory=Series)
    acks: Acknowledgements = field(default_factory=Acknowledgements)
    leaders: Leaders = field(default_factory=Leaders)
    latencies: "array[int]" = field(default_factory=lambda: array("L", [0]) * LEVELS)
    operations: Counter[str] = field(default_factory=Counter)  # lines by kind: ok, fail, info
    crashes: int = 0  # of these, ends of clients
    acknowledged: int = 0  # records
    read: int = 0
    read_at_end: int = 0
    without_time: int = 0
    end_s: float = 0.0  # the last thing that was seen
    faults: list[Fault] = field(default_factory=list)
    fault_counts: Counter[str] = field(default_factory=Counter)
    whom_counts: Counter[str] = field(default_factory=Counter)  # by target: a leader, a majority
    anomalies: list[Anomaly] = field(default_factory=list)
    anomaly_counts: Counter[str] = field(default_factory=Counter)
    allowed_counts: Counter[str] = field(default_factory=Counter)
    shown: dict[int, dict[str, Any]] = field(default_factory=dict)  # history line -> operation
    gaps: list[Gap] = field(default_factory=list)
    history_there: bool = False
    history_lines: int = 0
    from_samples: bool = False  # throughput and gaps are those of seen.jsonl
    bytes: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.operations.values())

    @property
    def longest_gap(self) -> Gap | None:
        return max(self.gaps, key=lambda gap: gap.seconds, default=None)

    @property
    def longest_gap_s(self) -> float | None:
        """0.0: none longer than GAP_S; None: nothing is known of gaps."""
        if self.acks.first_s is None:
            return None
        gap = self.longest_gap
        return gap.seconds if gap else 0.0

    @property
    def writing_s(self) -> float:
        """From the first acknowledgement to the last write that was tried."""
        first, last = self.acks.first_s, self.acks.last_s
        if first is None or last is None:
            return 0.0
        return self.acks.until_s - first

    @property
    def a_second(self) -> float | None:
        """Records acknowledged a second, faults and gaps included."""
        return self.acknowledged / self.writing_s if self.writing_s > 0 else None

    def latency_ms(self, part: float) -> float | None:
        return quantile_ms(self.latencies, part)


def measure(folder: Path) -> Measured:
    """Anomalies first: they say which operations of the history are to be kept. NoRun without run.json."""
    found = Measured(read_run(folder))
    found.problems += found.run.problems
    wanted = _read_anomalies(found, JsonLines(folder / ANOMALIES))
    _read_faults(found, JsonLines(folder / FAULTS))
    samples = _read_seen(found, JsonLines(folder / SEEN))
    _read_history(found, JsonLines(folder / HISTORY), wanted)
    untimed = found.without_time == found.total
    if untimed and any(total > 0 for _, total in samples):
        _take_samples(found, samples)
    found.gaps = _first_of(found.acks.gaps(_gap_s(found)), GAPS_MAX)
    found.end_s = max(found.end_s, *(each.until_s or each.at_s for each in found.faults), 0.0)
    if found.end_s > 0:
        found.series.at(found.end_s)  # what is empty at the end is drawn as empty
    found.leaders.end(found.end_s)
    if found.acks.first_s is not None:
        for fault, after in zip_longest(found.faults, found.faults[1:]):
            until = found.end_s if fault.until_s is None else fault.until_s + AFTER_S
            if after is not None and fault.until_s is not None:  # what the next one does is its own
                until = max(fault.until_s, min(until, after.at_s))
            fault.gap_s = found.acks.longest_within(fault.at_s, until)
    return found


def _gap_s(found: Measured) -> float:
    return max(GAP_S, 2 * found.acks.cell_s) if not found.from_samples else 3.0


def _first_of(gaps: Any, most: int) -> list[Gap]:
    """The longest ones, when there are too many."""
    kept: list[Gap] = []
    for gap in gaps:
        kept.append(gap)
        if len(kept) >= 2 * most:
            kept = sorted(kept, key=lambda each: -each.seconds)[:most]
    return sorted(sorted(kept, key=lambda each: -each.seconds)[:most])


# -- anomalies and faults --------------------------------------------------------------------------


def _read_anomalies(found: Measured, lines: JsonLines) -> set[int]:
    wanted: set[int] = set()
    for _, each in lines:
        name = text_of(each.get("name")) or "(no name)"
        allowed = each.get("allowed") is True
        (found.allowed_counts if allowed else found.anomaly_counts)[name] += 1
        of_name = found.anomaly_counts[name] + found.allowed_counts[name]
        if of_name > OF_ONE_NAME_MAX or len(found.anomalies) >= ANOMALIES_SHOWN_MAX:
            continue
        said = each.get("operations")
        numbers = [number_of(line) for line in said[:50]] if isinstance(said, list) else []
        shown = tuple(int(number) for number in numbers if number is not None)
        what, key = text_of(each.get("what")), text_of(each.get("key"))
        found.anomalies.append(Anomaly(name, key, what, shown, allowed))
        if len(wanted) < OPERATIONS_SHOWN_MAX:
            wanted.update(shown)
    found.problems += lines.problems
    return wanted


def _read_faults(found: Measured, lines: JsonLines) -> None:
    by_id: dict[str, Fault] = {}
    not_shown: set[str] = set()  # above so many faults they are counted only, each of them once
    timeless = 0
    for number, each in lines:
        at = _time_of(each.get("at_s"))
        until = _time_of(each.get("until_s"))
        name = text_of(each.get("id")) if "id" in each else f"line {number}"
        known = by_id.get(name)
        if known is not None:
            known.until_s = until if until is not None else known.until_s
            known.nodes = known.nodes or words_of(each.get("nodes"))
            known.what = known.what or text_of(each.get("what"))
            known.builds = _listed(each.get("builds")) or known.builds
            continue
        if name in not_shown:
            continue
        if at is None:
            timeless += 1
            continue
        kind = text_of(each.get("fault")) or "(no name)"
        if each.get(STRUCK) is not False:
            found.fault_counts[kind] += 1
            found.whom_counts[text_of(each.get("target"))] += 1
        nodes = words_of(each.get("nodes"))
        if len(by_id) < FAULTS_MAX:
            by_id[name] = Fault(
                name,
                at,
                until,
                kind,
                text_of(each.get("target")),
                nodes,
                text_of(each.get("what")),
                builds=_listed(each.get("builds")),
            )
        else:
            not_shown.add(name)
    if timeless:
        found.problems.append(f"{timeless:,} lines of {lines.file.name} have no time: left out")
    found.faults = sorted(by_id.values(), key=lambda fault: fault.at_s)
    found.problems += lines.problems


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# -- what was seen of the cluster ------------------------------------------------------------------


def _read_seen(found: Measured, lines: JsonLines) -> list[tuple[float, float]]:
    """Who led, and totals of what was acknowledged; these are thinned out when they are many."""
    samples: list[tuple[float, float]] = []
    for _, each in lines:
        at = _time_of(each.get("at_s"))
        if at is None:
            continue
        found.end_s = max(found.end_s, at)
        found.leaders.add(at, each)
        found.bytes = max(found.bytes, number_of(each.get("bytes")) or 0.0)
        total = number_of(each.get("acked"))
        if total is not None and total >= 0:
            samples.append((at, total))
            if len(samples) > 100_000:
                samples = samples[::2]
    found.problems += lines.problems
    return samples


def _take_samples(found: Measured, samples: list[tuple[float, float]]) -> None:
    """A history without times: totals that were read about each second are the next best."""
    found.from_samples = True
    before = 0.0
    for at, total in sorted(samples):
        if total > before:
            found.acks.add(at)
            found.series.at(at).acknowledged += int(total - before)
            before = total
        found.acks.tried(at, at)
    found.acknowledged = max(found.acknowledged, int(before))


# -- the history -----------------------------------------------------------------------------------


def _read_history(found: Measured, lines: JsonLines, wanted: set[int]) -> None:
    found.history_there = lines.there
    for number, op in lines:
        if number in wanted:
            found.shown[number] = op
        kind = op.get("type")
        if kind not in KINDS or op.get("f") == OPEN:
            continue
        found.operations[kind] += 1
        found.crashes += op.get("f") == CRASH
        _take(found, op, kind)
    found.history_lines = lines.lines
    found.problems += lines.problems
    if lines.lines and found.without_time == found.total:
        found.problems.append(f"no operation of {HISTORY} has a time: there is no latency to show")
    elif found.without_time:
        found.problems.append(
            f"{found.without_time:,} operations of {HISTORY} have no usable time: counted, not drawn"
        )


def _take(found: Measured, op: dict[str, Any], kind: str) -> None:
    sent, polled = _records_of(op)
    at_end = op.get("process") == FINAL or op.get("final") is True
    if kind == "ok":
        found.acknowledged += sent
        if at_end:
            found.read_at_end += polled
        else:
            found.read += polled
    began, ended = _time_of(op.get("began_s")), _time_of(op.get("ended_s"))
    if ended is None:
        found.without_time += 1
        return
    found.end_s = max(found.end_s, ended)
    place = found.series.at(ended)
    if kind != "ok":
        setattr(place, kind, getattr(place, kind) + (op.get("f") != CRASH))
    elif not at_end:
        place.read += polled
    if not sent:
        return
    found.acks.tried(ended if began is None else began, ended)
    if kind == "ok":
        place.acknowledged += sent
        found.acks.add(ended)
        if began is not None and began <= ended:
            latency_ms = 1000.0 * (ended - began)
            place.add_latency(latency_ms)
            found.latencies[level_of(latency_ms)] += 1


def _records_of(op: dict[str, Any]) -> tuple[int, int]:
    """How many it wrote and how many it read."""
    f = op.get("f")
    if f == "send" and "sends" not in op:
        return 1, 0
    if f == "read" and "polls" not in op:
        return 0, 1
    sends, polls = op.get("sends"), op.get("polls")
    return (
        len(sends) if isinstance(sends, list) else 0,
        len(polls) if isinstance(polls, list) else 0,
    )


def _time_of(value: Any) -> float | None:
    """Seconds of this run. A time from before it, or from months after, is no time."""
    number = number_of(value)
    if number is None or not -1.0 <= number <= TIME_MAX_S:
        return None
    return max(0.0, number)
