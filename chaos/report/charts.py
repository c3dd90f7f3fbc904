"""Charts over one common axis of time: shapes are SVG that stretches with the page, words are HTML that does not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from . import words
from .axes import LogAxis, TimeAxis, ValueAxis
from .markup import details, table, text
from .measured import Measured
from .series import Bin

ROWS_MAX = 120  # of a table behind a chart


@dataclass(frozen=True, slots=True)
class Drawn:
    """One chart, before it has a frame around it."""

    name: str
    unit: str
    shapes: str
    described: str  # for who does not see it
    ticks: Sequence[tuple[float, str]] = ()
    labels: str = ""  # HTML over the shapes
    legend: Sequence[tuple[str, str]] = ()  # class, what it stands for
    tall: bool = True
    values: Sequence[str] = field(default_factory=tuple)  # of each bin, for the pointer


def framed(drawn: Drawn, axis: TimeAxis, shade: str, *, last: bool = False) -> str:
    """With its name, its axes, and the times of faults behind it."""
    lines = "".join(f'<path class="grid" d="M0 {y}H1000"/>' for y, _ in drawn.ticks)
    verticals = "".join(f'<path class="grid" d="M{x} 0V1000"/>' for x, _ in axis.ticks())
    marks = "".join(f'<span style="top:{y / 10:g}%">{label}</span>' for y, label in drawn.ticks)
    legend = "".join(f'<span class="key {kind}">{label}</span>' for kind, label in drawn.legend)
    size = "plot" if drawn.tall else "plot low"
    title = f"{drawn.name}{', ' + drawn.unit if drawn.unit else ''}"
    values = f' data-values="{text("|".join(drawn.values))}"' if drawn.values else ""
    return (
        f'<div class="chart"><h3>{text(drawn.name)} <small>{text(drawn.unit)}</small>'
        f'<span class="legend">{legend}</span></h3>\n'
        f'<div class="row"><div class="y" aria-hidden="true">{marks}</div>'
        f'<div class="{size}"{values}><svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img">'
        f"<title>{text(title)}</title><desc>{text(drawn.described)}</desc>"
        f"{shade}{verticals}{lines}{drawn.shapes}</svg>{drawn.labels}</div></div>"
        f"{time_marks(axis) if last else ''}</div>"
    )


def time_marks(axis: TimeAxis) -> str:
    marks = axis.ticks()
    spans = "".join(
        f'<span class="{_place(x)} {"odd" if at % 2 else "even"}" style="left:{x / 10:g}%">{label}</span>'
        for at, (x, label) in enumerate(marks)
    )
    return f'<div class="row"><div class="y"></div><div class="x" aria-hidden="true">{spans}</div></div>'


def _place(x: float) -> str:
    """Words at an edge stay inside."""
    return "first" if x < 20 else "last" if x > 975 else "inside"


def shading(spans: Iterable[tuple[float, float]], axis: TimeAxis) -> str:
    """Where at least one fault was, once."""
    merged: list[list[float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return "".join(
        f'<rect class="shade" x="{axis.x(start)}" y="0" width="{max(axis.x(end) - axis.x(start), 1):.2f}" height="1000"/>'
        for start, end in merged
    )


# -- the three ---------------------------------------------------------------------------------------


def throughput(found: Measured, axis: TimeAxis) -> Drawn:
    series = found.series
    written, read = series.a_second("acknowledged"), series.a_second("read")
    scale = ValueAxis.up_to(max([*written, *read], default=0.0))
    width = series.width_s
    middle = [axis.x((at + 0.5) * width) for at in range(len(series.bins))]
    shapes = ""
    legend = [("accent", "acknowledged")]
    if any(read):
        legend.append(("second", "read"))
        shapes += (
            f'<path class="line second" d="{_line(middle, [scale.y(each) for each in read])}"/>'
        )
    if middle:
        top = _line(middle, [scale.y(each) for each in written])
        shapes = f'<path class="area" d="{top}L{middle[-1]} 1000L{middle[0]} 1000Z"/>{shapes}'
        shapes += f'<path class="line accent" d="{top}"/>'
    for gap in found.gaps:
        x, end = axis.x(gap.from_s), axis.x(gap.to_s)
        shapes += f'<rect class="gap" x="{x}" y="955" width="{max(end - x, 1):.2f}" height="45"/>'
    labels = ""
    if found.gaps:
        legend.append(("bad", "nothing acknowledged for over a second"))
        labels = _gap_label(found, axis)
    most = words.rate(max(written, default=0.0))
    said = f"Up to {most} records a second were acknowledged; {words.plural(len(found.gaps), 'gap')} of over a second."
    return Drawn(
        "Throughput",
        "records a second",
        shapes,
        said,
        scale.ticks(),
        labels,
        legend,
        values=[
            f"{words.rate(w)} acknowledged, {words.rate(r)} read"
            for w, r in zip(written, read, strict=True)
        ],
    )


def _gap_label(found: Measured, axis: TimeAxis) -> str:
    """The longest one is told where it is."""
    gap = found.longest_gap
    assert gap is not None, "asked for the longest of no gaps"
    middle = axis.x((gap.from_s + gap.to_s) / 2)
    side = "first" if middle < 80 else "last" if middle > 920 else ""
    said = f"{words.seconds(gap.seconds)}{', to the end' if gap.is_open else ''}"
    return f'<span class="note {side}" style="left:{middle / 10:g}%">{said}</span>'


def latency(found: Measured, axis: TimeAxis) -> Drawn | None:
    bins = found.series.bins
    medians, highs = ([each.quantile_ms(part) for each in bins] for part in (0.5, 0.99))
    known = [each for each in (*medians, *highs) if each is not None]
    if not known:
        return None
    scale = LogAxis.around(min(known), max(known))
    width = found.series.width_s
    middle = [axis.x((at + 0.5) * width) for at in range(len(bins))]
    shapes = ""
    for values, kind in ((highs, "second"), (medians, "accent")):
        ys = [None if each is None else scale.y(each) for each in values]
        shapes += f'<path class="line {kind}" d="{_broken_line(middle, ys)}"/>'
    said = f"Half within {words.milliseconds(found.latency_ms(0.5))}, 99 of 100 within {words.milliseconds(found.latency_ms(0.99))}."
    return Drawn(
        "Latency of writes",
        "until acknowledged, logarithmic",
        shapes,
        said,
        scale.ticks(),
        legend=[("accent", "median"), ("second", "99th percentile")],
        values=[
            f"median {words.milliseconds(m)}, 99th {words.milliseconds(h)}"
            for m, h in zip(medians, highs, strict=True)
        ],
    )


def not_done(found: Measured, axis: TimeAxis) -> Drawn | None:
    """Operations that failed, and those of which nobody knows."""
    series = found.series
    failed, unknown = series.a_second("fail"), series.a_second("info")
    if not any(failed) and not any(unknown):
        return None
    scale = ValueAxis.up_to(max(a + b for a, b in zip(failed, unknown, strict=True)))
    shapes = ""
    for at, (fail, info) in enumerate(zip(failed, unknown, strict=True)):
        x, end = axis.x(at * series.width_s), axis.x((at + 1) * series.width_s)
        wide = f'x="{x}" width="{max(end - x, 0.5):.2f}"'
        top, middle = scale.y(fail + info), scale.y(info)
        if fail:
            shapes += f'<rect class="bar fail" {wide} y="{top}" height="{middle - top:.1f}"/>'
        if info:
            shapes += f'<rect class="bar info" {wide} y="{middle}" height="{1000 - middle:.1f}"/>'
    fails, infos = found.operations["fail"], found.operations["info"] - found.crashes
    return Drawn(
        "Not acknowledged",
        "operations a second",
        shapes,
        f"{words.plural(fails, 'operation')} failed, of {words.count(infos)} the outcome is unknown.",
        (scale.ticks()[0], scale.ticks()[-1]),
        legend=[("fail", "failed for certain"), ("info", "outcome unknown")],
        tall=False,
        values=[
            f"{words.rate(f)} failed, {words.rate(i)} unknown"
            for f, i in zip(failed, unknown, strict=True)
        ],
    )


def _line(xs: Sequence[float], ys: Sequence[float]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in zip(xs, ys, strict=True)) if xs else ""


def _broken_line(xs: Sequence[float], ys: Sequence[float | None]) -> str:
    """With holes where nothing is known; a value between two holes is a short dash."""
    parts = []
    for at, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if y is None:
            continue
        before = ys[at - 1] if at else None
        after = ys[at + 1] if at + 1 < len(ys) else None
        parts.append(f"{'L' if before is not None else 'M'}{x} {y}")
        if before is None and after is None:
            parts.append(f"h{0.6 * (xs[1] - xs[0] if len(xs) > 1 else 5):.2f}")
    return "".join(parts)


def as_table(found: Measured) -> str:
    """The same figures as text."""
    series = found.series
    if not series.bins:
        return ""
    together = -(-len(series.bins) // ROWS_MAX)
    width = series.width_s
    rows = []
    for at in range(0, len(series.bins), together):
        joined, seconds = _joined(series.bins[at : at + together]), width * together
        rows.append(
            [
                f"{at * width:g}",
                words.rate(joined.acknowledged / seconds),
                words.rate(joined.read / seconds),
                words.milliseconds(joined.quantile_ms(0.5)),
                words.milliseconds(joined.quantile_ms(0.99)),
                words.count(joined.fail),
                words.count(joined.info),
            ]
        )
    head = ["from second", "acknowledged/s", "read/s", "p50", "p99", "failed", "unknown"]
    inside = table(head, rows, numbers=range(7), name="figures over time")
    return details(f"The same as a table, {width * together:g} s a row", inside)


def _joined(bins: Sequence[Bin]) -> Bin:
    joined = Bin()
    for each in bins:
        if each.latencies is not None and joined.latencies is None:
            joined.latencies = each.latencies[:]
            copy = Bin(each.acknowledged, each.read, each.fail, each.info)
            joined.join(copy)
        else:
            joined.join(each)
    return joined
