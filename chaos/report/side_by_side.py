"""Kafka and Fencepost under the same faults: what was lost, how long it took to recover, how much went through."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from ..checkers.availability import NOT_SERVED
from ..runs.judging import NO_KINDS
from . import words
from .digest import RECOVERIES_MIN, Digest
from .markup import text
from .run_folder import INVALID, UNKNOWN, VALID

KAFKA: Final = "kafka"
SIMULATOR: Final = "simulator"


@dataclass(frozen=True, slots=True)
class Side:
    """All runs of one system under one workload and one set of faults."""

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
    return "Fencepost, simulated" if each.target == SIMULATOR else "Fencepost"


def groups_of(found: Iterable[Digest]) -> dict[tuple[str, str, int], list[Side]]:
    """(workload, faults, nodes) -> what each system came to under them."""
    by_system: dict[tuple[str, str, int], dict[str, list[Digest]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for each in found:
        faults = ", ".join(sorted(each.faults or each.struck)) or "none"
        by_system[each.workload, faults, each.nodes][system_of(each)].append(each)
    return {
        key: [Side(system, tuple(runs)) for system, runs in sorted(systems.items())]
        for key, systems in sorted(by_system.items())
    }


def comparisons(found: Sequence[Digest]) -> str:
    groups = groups_of(found)
    both = {
        key: sides
        for key, sides in groups.items()
        if any(side.is_kafka for side in sides) and not all(side.is_kafka for side in sides)
    }
    if not both:
        return ""
    pairs = "".join(_pair(key, sides) for key, sides in both.items())
    return (
        '<section><h2>Kafka and Fencepost under the same faults</h2><div class="panel">'
        f'{pairs}<p class="quiet">The same workload and checkers, and the same faults asked for; which of them struck, and how often, '
        "is each one's own column. Records a second and the median recovery are medians over runs; gaps, p99 and max are the worst of any "
        f"run. A run in which fewer than {RECOVERIES_MIN} faults were recovered from has no percentiles; a fault that somebody was never "
        "served again after has no time, and is counted.</p></div></section>"
    )


_HEAD: Final = (
    "system", "runs", "hours", "faults that struck", "anomalies", "records/s", "longest gap", "recovery p50", "p99", "max",
    "not served",
)  # fmt: skip
_NUMBERS: Final = (2, 5, 6, 7, 8, 9, 10)


def _pair(key: tuple[str, str, int], sides: Sequence[Side]) -> str:
    workload, faults, nodes = key
    on = f" on {words.plural(nodes, 'node')}" if nodes else ""
    most = max((side.a_second or 0.0 for side in sides), default=0.0)
    gap = max((side.longest_gap_s or 0.0 for side in sides), default=0.0)
    heads = "".join(
        f'<th scope="col"{" class=n" if at in _NUMBERS else ""}>{name}</th>'
        for at, name in enumerate(_HEAD)
    )
    rows = "".join(_side(side, most, gap) for side in sides)
    return (
        f'<div class="pair"><h3><bdi>{text(workload or "(no workload named)")}</bdi>{on} <small><bdi>{text(faults)}</bdi></small></h3>'
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
