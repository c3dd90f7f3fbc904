"""The parts of a run's page beneath its charts: figures, anomalies with their operations, faults, and how to run it again."""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ..checkers.availability import NOT_SERVED
from . import words
from .counted import Counted, beside_words, counted
from .digest import MOST, RECOVERIES_MIN
from .markup import definitions, details, table, text
from .measured import AFTER_S, GAP_S, Anomaly, Fault, Measured
from .run_folder import number_of, text_of
from .strips import fault_sentence

FAULT_ROWS_MAX = 300
SHOWN = (  # of run.json
    "name", "workload", "target", "nodes", "seed", "faults", "command", "began", "seconds", "versions", "machine",
    "verdict", "why", "counts", "recovery_ms",
)  # fmt: skip
LISTED_MAX = 12  # sends or polls of one operation
WORD_MAX = 120


# -- figures ---------------------------------------------------------------------------------------


def tiles(found: Measured) -> str:
    run = found.run
    figures = counted(found)
    gap = found.longest_gap_s
    recovery, recovery_note, never = _recovery(found)
    ran = words.seconds(found.end_s)
    asked_s = run.asked_s or run.seconds
    asked = f"{words.seconds(asked_s)} of load were asked for" if asked_s else ""
    cells = [
        ("Ran for", ran, asked, ""),
        (
            "Operations",
            words.count(figures.total),
            _operations_words(figures),
            "",
        ),
        ("Records acknowledged", words.count(figures.records), _read_words(figures), ""),
        ("Acknowledged a second", words.rate(found.a_second), "faults and gaps included", ""),
        (
            "Faults",
            words.count(sum(found.fault_counts.values())),
            words.plural(len(found.fault_counts), "kind"),
            "",
        ),
        (
            "Longest gap",
            "–" if gap is None else words.seconds(gap) if gap else f"under {GAP_S:g} s",
            "without any acknowledgement",
            "hot" if found.longest_gap and found.longest_gap.is_open else "",
        ),
        (
            "Recovery",
            words.milliseconds(recovery),
            recovery_note,
            "hot" if never else "",
        ),
    ]
    inside = "".join(
        f'<div class="{hot}"><dt>{name}</dt><dd><b>{value}</b><span>{text(note)}</span></dd></div>'
        for name, value, note, hot in cells
    )
    return f'<dl class="tiles">{inside}</dl>'


def _recovery(found: Measured) -> tuple[float | None, str, bool]:
    """The time to be shown, what it is, and whether somebody was never served again."""
    known = found.run.recovery_ms
    never = known.get(NOT_SERVED, 0)
    more = f", {words.count(never)} not served" if never else ""
    most = words.milliseconds(known.get(MOST))
    if sum(found.fault_counts.values()) - never < RECOVERIES_MIN:
        few = (
            f"max; percentiles take {RECOVERIES_MIN} faults"
            if MOST in known
            else "no time is known"
        )
        return known.get(MOST), few + more, bool(never)
    p99 = words.milliseconds(known.get("p99"))
    return known.get("p50"), f"p99 {p99}, max {most}{more}", bool(never)


def _operations_words(figures: Counted) -> str:
    kinds = {kind: words.count(count) for kind, count in figures.operations.items()}
    beside = f"; {more}" if (more := beside_words(figures)) else ""
    return f"{kinds['ok']} ok, {kinds['fail']} failed, {kinds['info']} unknown{beside}"


def _read_words(figures: Counted) -> str:
    in_vain = words.count(figures.read_in_vain)
    of_them = f" ({in_vain} in what failed or is unknown)" if figures.read_in_vain else ""
    at_end = f", {words.count(figures.read_at_end)} at the end" if figures.read_at_end else ""
    return f"{words.count(figures.read)} read meanwhile{of_them}{at_end}"


# -- anomalies -------------------------------------------------------------------------------------


def anomalies(found: Measured) -> str:
    if not found.anomalies:
        return ""
    by_name: dict[str, list[Anomaly]] = defaultdict(list)
    for each in found.anomalies:
        by_name[each.name].append(each)
    ordered = sorted(by_name.items(), key=lambda each: (each[1][0].is_allowed, each[0]))
    blocks = []
    for name, shown in ordered:
        total = found.anomaly_counts[name] + found.allowed_counts[name]
        tag = '<span class="tag allowed">allowed here</span>' if shown[0].is_allowed else ""
        more = f"; the first {len(shown)} are shown" if total > len(shown) else ""
        said = f"{words.RULES.get(name, '')}{more}".strip("; ")
        head = f"<h3><bdi>{text(name)}</bdi> × {words.count(total)} {tag}<small>{text(said)}</small></h3>"
        blocks.append(
            f'<div class="anomaly">{head}{"".join(_one(each, found) for each in shown)}</div>'
        )
    return f'<section><h2 id="anomalies">Anomalies</h2><div class="panel">{"".join(blocks)}</div></section>'


def _one(anomaly: Anomaly, found: Measured) -> str:
    key = f"<code>{text(anomaly.key)}</code>: " if anomaly.key else ""
    sentence = f"<p>{key}<bdi>{text(anomaly.what)}</bdi></p>"
    rows = [
        _operation(line, found.shown[line], anomaly.key)
        for line in anomaly.lines
        if line in found.shown
    ]
    if not rows:
        return sentence
    head = ["line", "outcome", "process", "when", "what it did"]
    shown = table(head, rows, numbers=(0,), name="the operations that show it")
    return f'{sentence}<div class="ops">{shown}</div>'


def _operation(line: int, op: Mapping[str, Any], key: str) -> list[str]:
    began, ended = number_of(op.get("began_s")), number_of(op.get("ended_s"))
    when = "–" if ended is None else f"{ended:.3f} s"
    if began is not None and ended is not None:
        when = f"{began:.3f} to {ended:.3f} s"
    what = [f"<b>{text(_cut(op.get('f')))}</b>", *_pieces(op, key)]
    if why := op.get("why") or op.get("error"):
        what.append(f"<small>{text(_cut(why))}</small>")
    who, number = _cut(op.get("process")), op.get("number")
    if isinstance(number, int) and number >= 0:
        who += f", transaction {number}"
    return [
        words.count(line),
        text(_cut(op.get("type"))),
        f"<bdi>{text(who)}</bdi>",
        when,
        " ".join(what),
    ]


def _pieces(op: Mapping[str, Any], key: str) -> list[str]:
    """Sends and polls, those of the anomaly's key first."""
    found = []
    if isinstance(sends := op.get("sends"), list) and sends:
        shown = [(_at(each, 0), f"{_at(each, 1)}{_offset(_at(each, 2))}") for each in sends]
        found.append(f"sent {_listed(shown, key)}")
    if isinstance(polls := op.get("polls"), list) and polls:
        shown = [(_at(each, 0), f"{_at(each, 2)}{_offset(_at(each, 1))}") for each in polls]
        found.append(f"polled {_listed(shown, key)}")
    if isinstance(offsets := op.get("offsets"), dict) and offsets:
        shown = [(place, f"position {at}") for place, at in list(offsets.items())[:500]]
        found.append(f"stored {_listed(shown, key)}")
    if "sends" not in op and "polls" not in op and "key" in op:
        of = (_cut(op.get("key")), f"{_cut(op.get('value'))}{_offset(_cut(op.get('offset')))}")
        found.append(_listed([of], key))
    return found


def _listed(pairs: list[tuple[str, str]], key: str) -> str:
    ordered = sorted(pairs, key=lambda pair: pair[0] != key) if key else pairs
    parts = []
    for place, value in ordered[:LISTED_MAX]:
        shown = f"<code>{text(place)}</code> {text(value)}"
        parts.append(f"<mark>{shown}</mark>" if place == key else shown)
    more = f" and {len(pairs) - LISTED_MAX} more" if len(pairs) > LISTED_MAX else ""
    return ", ".join(parts) + more


def _at(values: Any, index: int) -> str:
    if isinstance(values, list):
        return _cut(values[index]) if index < len(values) else ""
    return _cut(values) if index == 0 else ""


def _offset(offset: str) -> str:
    return f" at {offset}" if offset not in ("", "null") else ""


def _cut(value: Any) -> str:
    shown = text_of(value)
    return shown if len(shown) <= WORD_MAX else f"{shown[:WORD_MAX]}…"


# -- faults ----------------------------------------------------------------------------------------


def faults(found: Measured) -> str:
    if not found.faults:
        return ""
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for each in found.faults:
        by_kind[each.fault].append(each)
    rows = []
    for kind, count in sorted(found.fault_counts.items(), key=lambda each: (-each[1], each[0])):
        lasted = [f.until_s - f.at_s for f in by_kind[kind] if f.until_s is not None]
        gaps = [f.gap_s for f in by_kind[kind] if f.gap_s is not None]
        rows.append(
            [
                f"<bdi>{text(kind)}</bdi>",
                words.count(count),
                words.seconds(_middle(lasted)),
                words.seconds(_middle(gaps)),
                words.seconds(max(gaps, default=None)),
            ]
        )
    head = ["fault", "times", "lasted (median)", "gap (median)", "gap (worst)"]
    inside = table(head, rows, numbers=(1, 2, 3, 4), name="faults by kind")
    note = (
        '<p class="quiet">The gap is the longest time without any acknowledgement from a fault\'s beginning until '
        f"{AFTER_S:g} s after its end, or until the next one began.</p>"
    )
    more = _each(found) + _said(found)
    return f'<section><h2>Faults</h2><div class="panel">{inside}{note}{more}</div></section>'


def _each(found: Measured) -> str:
    rows = [
        [
            f"{each.at_s:.1f}",
            "never" if each.until_s is None else f"{each.until_s:.1f}",
            f"<bdi>{text(each.fault)}</bdi>",
            text(each.target),
            text(", ".join(each.nodes)),
            f"<bdi>{text(fault_sentence(each))}</bdi>",
            words.seconds(each.gap_s),
        ]
        for each in found.faults[:FAULT_ROWS_MAX]
    ]
    total = sum(found.fault_counts.values())
    more = f", the first {len(rows)} of {words.count(total)}" if total > len(rows) else ""
    head = ["from s", "to s", "fault", "target", "nodes", "what", "gap"]
    return details(f"Each of them{more}", table(head, rows, numbers=(0, 1, 6), name="each fault"))


def _said(found: Measured) -> str:
    """What the harness has seen of the nodes, in its own words."""
    if not found.run.said:
        return ""
    sentences = "".join(f"<li><bdi>{text(each)}</bdi></li>" for each in found.run.said)
    return details("What the harness has seen", f'<ul class="notes">{sentences}</ul>')


def _middle(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


# -- how it was run --------------------------------------------------------------------------------


def how(found: Measured) -> str:
    run = found.run
    pairs = [
        ("workload", run.workload),
        ("target", run.target),
        ("nodes", str(run.nodes) if run.nodes else ""),
        ("faults", ", ".join(run.faults)),
        ("seed", run.seed),
        ("began", words.moment(run.began)),
        ("load asked for", words.seconds(run.asked_s) if run.asked_s else ""),
        ("took" if run.asked_s else "seconds", words.seconds(run.seconds) if run.seconds else ""),
        *run.versions.items(),
        *run.machine.items(),
    ]
    facts = definitions((name, f"<bdi>{text(value)}</bdi>") for name, value in pairs if value)
    command = (
        f"<pre>{text(run.command)}</pre>" if run.command else "<p>run.json names no command.</p>"
    )
    counts = ""
    if run.counts:
        rows = [
            [f"<bdi>{text(name)}</bdi>", words.count(value)] for name, value in run.counts.items()
        ]
        counts = details("What the run itself counted", table(["", "count"], rows, numbers=(1,)))
    files = details(
        "run.json",
        f"<pre>{text(json.dumps(_plain(run), indent=2, ensure_ascii=False))}</pre>",
    )
    return (
        '<section><h2>Run it again</h2><div class="panel">'
        f"{command}<p></p>{facts}{counts}{files}</div></section>"
    )


def _plain(run: Any) -> dict[str, Any]:
    return {name: getattr(run, name) for name in SHOWN}
