"""The page of one run: `write_page(folder)` makes `report.html` beside what was measured, and `report.json` for an index.

The page is one file that needs nothing else: opened from a disk, kept in an archive, sent in a mail.
"""

import os
from pathlib import Path
from typing import Final

from . import builds, charts, digest, sections, strips, words
from .axes import TimeAxis
from .markup import details, page, table, text
from .measured import Measured, measure
from .run_folder import INVALID, UNKNOWN, VALID
from .verdict import Judgement, judged

PAGE: Final = "report.html"
SIGNS: Final = {VALID: "✓", INVALID: "✕", UNKNOWN: "?"}


def write_page(run_folder: Path) -> Path:
    """The page's path. NoRun when the folder holds no run.json."""
    file = run_folder / PAGE
    if file.is_file() and digest.is_pruned(run_folder):
        return file  # made when there was more to make it of
    signs = digest.signs_of(run_folder)
    found = measure(run_folder)
    judgement = judged(found)
    digest.write(run_folder, digest.of(found, judgement, signs))
    draft = run_folder / f".{PAGE}.{os.getpid()}"
    draft.write_text(page_of(found, judgement), encoding="utf-8")
    draft.replace(file)
    return file


def page_of(found: Measured, judgement: Judgement) -> str:
    body = [
        _header(found, judgement),
        "<main>",
        sections.tiles(found),
        sections.anomalies(found) if judgement.verdict == INVALID else "",
        _charts(found),
        sections.anomalies(found) if judgement.verdict != INVALID else "",
        sections.faults(found),
        sections.how(found),
        "</main>",
        _footer(),
    ]
    title = f"{judgement.verdict}: {found.run.title}"
    return page(title, "\n".join(body), script="page.js")


def _header(found: Measured, judgement: Judgement) -> str:
    run = found.run
    over = [f"<b>Fencepost chaos</b><span>{text(words.moment(run.began))}</span>"]
    if run.commit:
        over.append(f"<span>commit {text(run.commit)}</span>")
    where = " on ".join(each for each in (run.workload, run.target) if each)
    under = ", ".join(run.faults)
    line = ": ".join(each for each in (where, under) if each)
    notes = "".join(f"<li><bdi>{text(each)}</bdi></li>" for each in judgement.notes)
    why = f"<p><bdi>{text(judgement.why)}</bdi></p>" if judgement.why else ""
    return (
        f'<header><p class="over">{"".join(over)}</p><h1><bdi>{text(run.title)}</bdi></h1>'
        f'<p class="quiet"><bdi>{text(line)}</bdi></p>'
        f'<div class="verdict {judgement.verdict}"><strong>{SIGNS[judgement.verdict]} '
        f"{text(judgement.headline)}</strong>{why}"
        f"{f'<ul class=notes>{notes}</ul>' if notes else ''}</div></header>"
    )


def _charts(found: Measured) -> str:
    """Everything over one axis of time, so that cause and effect stand above each other."""
    end_s = max(found.end_s, found.series.width_s * len(found.series.bins))
    if end_s <= 0:
        return '<section><h2>Over time</h2><div class="panel"><p>Nothing that has a time was written down.</p></div></section>'
    axis = TimeAxis(end_s)
    spans = [(f.at_s, found.end_s if f.until_s is None else f.until_s) for f in found.faults]
    shade = charts.shading(spans, axis)
    drawn = [
        each
        for each in (
            charts.throughput(found, axis),
            charts.latency(found, axis),
            charts.not_done(found, axis),
        )
        if each is not None
    ]
    parts = [strips.fault_lanes(found, axis)] if found.faults else []
    parts += [ran] if (ran := builds.strip(found, axis)) else []
    parts += [charts.framed(each, axis, shade, last=each is drawn[-1]) for each in drawn]
    led = strips.leaders(found, axis)
    if led:
        parts += [led, charts.time_marks(axis)]
    hint = "The shaded stretches are those of faults. Point at a chart to read it."
    tables = charts.as_table(found) + _gaps(found) + builds.as_table(found)
    tables += strips.leaders_table(found.leaders)
    return (
        f'<section><h2>Over time</h2><div class="panel"><div class="charts" data-end="{end_s:g}" '
        f'data-width="{found.series.width_s:g}"><p class="readout">{hint}</p>{"".join(parts)}</div>{tables}</div></section>'
    )


def _gaps(found: Measured) -> str:
    if not found.gaps:
        return ""
    rows = [
        [
            f"{gap.from_s:.2f}",
            f"{gap.to_s:.2f}",
            words.seconds(gap.seconds),
            text(_struck(found, gap.from_s, gap.to_s)) + (" (to the end)" if gap.is_open else ""),
        ]
        for gap in sorted(found.gaps, key=lambda each: -each.seconds)[:100]
    ]
    head = ["from s", "to s", "nothing acknowledged for", "faults meanwhile"]
    shown = table(head, rows, numbers=(0, 1, 2), name="gaps in acknowledgements")
    return details(f"{words.plural(len(found.gaps), 'gap')}, the longest first", shown)


def _struck(found: Measured, from_s: float, to_s: float) -> str:
    kinds = {
        fault.fault: None
        for fault in found.faults
        if fault.at_s <= to_s and (fault.until_s is None or fault.until_s >= from_s)
    }
    return ", ".join(kinds) or "none"


def _footer() -> str:
    return (
        "<footer><p>Made from this folder's run.json, history.jsonl, faults.jsonl, seen.jsonl and anomalies.jsonl by "
        "<code>fencepost chaos report</code>. Quantiles of latency are right to a tenth.</p></footer>"
    )
