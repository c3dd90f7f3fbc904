"""Kafka and Fencepost under the same faults: what was lost, how long it took to recover, how much went through.

INVARIANT  a row is of one system on one kind of nodes, and of runs of which the same was asked as far as anybody has kept it;
           Kafka, whose nodes are processes, stands beside processes alone.
PREVENTS   a median of a run of processes and one of containers, which is neither's, told beside Kafka's.
PROVED BY  tests/chaos/test_report_side_by_side.py::test_kafka_runs_as_processes_and_is_compared_with_processes_alone
           tests/chaos/test_report_side_by_side.py::test_runs_of_which_not_the_same_was_asked_are_not_one_row
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final, NamedTuple

from ..checkers.availability import NOT_SERVED
from ..runs.judging import NO_KINDS
from ..runs.plan import LOAD_OPTIONS, Plan
from ..runs.plan_words import ANOTHER, KAFKA
from . import words
from .digest import RECOVERIES_MIN, Digest
from .markup import text
from .run_folder import INVALID, UNKNOWN, VALID, option_of

SIMULATOR: Final = "simulator"
OTHERS: Final = frozenset({KAFKA, ANOTHER})  # targets that are no Fencepost
AS_KAFKA_RUNS: Final = frozenset({KAFKA, "processes"})  # targets
NOT_KEPT: Final = "not kept"  # by older runs: what was asked of them
_USUAL: Final = {
    name: option_of(value) for name, value in json.loads(json.dumps(asdict(Plan()))).items()
}
_ALWAYS_TOLD: Final = frozenset({"seconds", "clients", "rate"})


class Alike(NamedTuple):
    """Runs that differ in none of these may be one row."""

    workload: str
    faults: str
    nodes: int
    load: str


@dataclass(frozen=True, slots=True)
class Side:
    """All runs of one system that are alike."""

    system: str
    runs: tuple[Digest, ...]

    @property
    def is_kafka(self) -> bool:
        return all(each.target == KAFKA for each in self.runs)

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.runs)

    @property
    def hours(self) -> str:
        return f"{self.seconds / 3600:,.2f}"

    @property
    def struck(self) -> str:
        """How many, and of which kinds: those that were asked for and never came are in no run's way."""
        by_kind = sum((Counter(each.struck) for each in self.runs), Counter[str]())
        never = sorted({name for each in self.runs for name in each.faults} - {*by_kind, *NO_KINDS})
        told = [words.listed(by_kind)] if by_kind else []
        told += [f"never {', '.join(never)}"] if never else []
        return f"{words.count(by_kind.total())} ({'; '.join(told)})" if told else "0"

    @property
    def anomalies(self) -> Counter[str]:
        return sum((Counter(each.anomalies) for each in self.runs), Counter())

    @property
    def anomalies_said(self) -> str:
        """Of runs that proved nothing nobody can say that there were none."""
        found = words.listed(self.anomalies, most=4)
        return found or ("none" if any(each.verdict == VALID for each in self.runs) else "–")

    @property
    def a_second(self) -> float | None:
        return _middle(each.a_second for each in self.runs)

    @property
    def longest_gap_s(self) -> float | None:
        return max((g for each in self.runs if (g := each.longest_gap_s) is not None), default=None)

    def recovery_ms(self, name: str) -> float | None:
        """Percentiles of runs that had enough to have one."""
        found = [ms for each in self.runs if (ms := each.recovery(name)) is not None]
        if name == "p50":
            return _middle(found)
        return max(found, default=None)

    @property
    def not_served(self) -> str:
        """Faults that somebody was never served again after: they have no time of recovery. Older runs did not count them."""
        found = [
            each.recovery_ms[NOT_SERVED] for each in self.runs if NOT_SERVED in each.recovery_ms
        ]
        return words.count(sum(found)) if found else "–"

    @property
    def verdicts(self) -> str:
        counts = Counter(each.verdict for each in self.runs)
        return ", ".join(
            f"{counts[kind]} {kind}" for kind in (VALID, INVALID, UNKNOWN) if counts[kind]
        )


def system_of(each: Digest) -> str:
    if each.target == KAFKA:
        version = each.versions.get("kafka", "")
        return f"Kafka {version}".strip()
    if each.target == ANOTHER:
        return ANOTHER
    if each.target == SIMULATOR:
        return "Fencepost, simulated"
    return f"Fencepost on {each.target or '?'}"


def load_of(options: Mapping[str, str]) -> str:
    """`60 s, 5 × 10/s` and what else is not as it usually is; empty where nobody has kept it.

    An option that a run did not have yet was as it usually is.
    """
    if not options:
        return ""
    asked = {**_USUAL, **options}
    told = [f"{asked['seconds']} s", f"{asked['clients']} × {asked['rate']}/s"]
    told += [
        f"{name.replace('_', '-')} {asked[name]}"
        for name in LOAD_OPTIONS
        if name not in _ALWAYS_TOLD and asked[name] != _USUAL[name]
    ]
    return ", ".join(told)


def compared(found: Iterable[Digest]) -> dict[Alike, list[Side]]:
    """What each system came to, wherever Kafka and Fencepost both ran as Kafka does."""
    by_system: dict[Alike, dict[str, list[Digest]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        if each.target in AS_KAFKA_RUNS:
            faults = ", ".join(sorted(each.faults or each.struck)) or "none"
            alike = Alike(each.workload, faults, each.nodes, load_of(each.options))
            by_system[alike][system_of(each)].append(each)
    groups = {
        key: [Side(system, tuple(runs)) for system, runs in sorted(systems.items())]
        for key, systems in sorted(by_system.items())
    }
    return {
        key: sides for key, sides in groups.items() if len({side.is_kafka for side in sides}) > 1
    }


def comparisons(found: Sequence[Digest]) -> str:
    both = compared(found)
    if not both:
        return ""
    pairs = "".join(_pair(key, sides) for key, sides in both.items())
    return (
        '<section><h2>Kafka and Fencepost under the same faults</h2><div class="panel">'
        f'{pairs}<p class="quiet">The same workload and checkers, and the same faults and load asked for, on processes of one machine; '
        "where the load was not kept it may differ. Which faults struck, and how often, is each one's "
        "own column. Records a second and the median recovery are medians over runs; gaps, p99 and max are the worst of any "
        f"run. A run in which fewer than {RECOVERIES_MIN} faults were recovered from has no percentiles; a fault that somebody was never "
        "served again after has no time, and is counted.</p></div></section>"
    )


_HEAD: Final = (
    "system", "runs", "hours", "faults that struck", "anomalies", "records/s", "longest gap", "recovery p50", "p99", "max",
    "not served",
)  # fmt: skip
_NUMBERS: Final = (2, 5, 6, 7, 8, 9, 10)


def _pair(key: Alike, sides: Sequence[Side]) -> str:
    workload, faults, nodes, load = key
    on = f" on {words.plural(nodes, 'node')}" if nodes else ""
    most = max((side.a_second or 0.0 for side in sides), default=0.0)
    gap = max((side.longest_gap_s or 0.0 for side in sides), default=0.0)
    heads = "".join(
        f'<th scope="col"{" class=n" if at in _NUMBERS else ""}>{name}</th>'
        for at, name in enumerate(_HEAD)
    )
    rows = "".join(_side(side, most, gap) for side in sides)
    return (
        f'<div class="pair"><h3><bdi>{text(workload or "(no workload named)")}</bdi>{on} <small><bdi>{text(faults)}</bdi></small> '
        f"<small><bdi>{text(load or f'load {NOT_KEPT}')}</bdi></small></h3>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(workload)} side by side"><table><thead><tr>{heads}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div></div>"
    )


def _side(side: Side, most: float, gap: float) -> str:
    anomalies = side.anomalies_said
    worst = side.longest_gap_s
    shown_gap = "–" if worst is None else words.seconds(worst) if worst else "under 1 s"
    busy = sum(bool(each.load) for each in side.runs)
    verdicts = side.verdicts + (f"; {busy} on a busy machine" if busy else "")
    cells = [
        f"<b>{text(side.system)}</b>",
        f"{len(side.runs)} <small>({text(verdicts)})</small>",
        side.hours,
        text(side.struck),
        f"<b>{text(anomalies)}</b>" if side.anomalies else anomalies,
        words.rate(side.a_second) + _bar(side, side.a_second, most),
        shown_gap + _bar(side, worst, gap),
        *(words.milliseconds(side.recovery_ms(name)) for name in ("p50", "p99", "max")),
        side.not_served,
    ]
    inside = "".join(
        f"<td{' class=n' if at in _NUMBERS else ''}>{cell}</td>" for at, cell in enumerate(cells)
    )
    return f"<tr>{inside}</tr>"


def _bar(side: Side, value: float | None, most: float) -> str:
    if not value or not most:
        return ""
    ours = "" if side.is_kafka else " ours"
    return f'<span class="bar-cell{ours}" style="width:{100 * value / most:.0f}%;margin-left:auto"></span>'


def _middle(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None
