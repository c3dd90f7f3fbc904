"""The table as a picture: for each row, bars for the three systems. Plain SVG, since no library is needed for it."""

from collections.abc import Sequence
from html import escape

from bench_table import KAFKA, SYNCED, WRITTEN, Row, Values, middle

WIDTH, LABELS, BARS = 900, 400, 380
BAR, GAP, TOP = 12, 14, 50
SYSTEMS = (
    (SYNCED, "Fencepost ack", "#1b7f5c"),
    (WRITTEN, "Fencepost os", "#58b894"),
    (KAFKA, "Kafka", "#9a9a9a"),
)


def plot(rows: Sequence[Row], measures: Values) -> str:
    """Each row has a scale of its own: the longest bar is its largest value."""
    shown = [row for row in rows if row.key in measures]
    height = TOP + len(shown) * (len(SYSTEMS) * BAR + GAP) + GAP
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            'font-family="sans-serif" font-size="11">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for place, row in enumerate(shown):
        parts += _row(row, measures, TOP + place * (len(SYSTEMS) * BAR + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    parts = []
    for place, (_, name, colour) in enumerate(SYSTEMS):
        x = LABELS + place * 120
        parts.append(f'<rect x="{x}" y="16" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="26">{name}</text>')
    return parts


def _row(row: Row, measures: Values, top: int) -> list[str]:
    values = [middle(measures, row.key, system) for system, _, _ in SYSTEMS]
    longest = max((value for value in values if value is not None), default=0.0) or 1.0
    centre = top + len(SYSTEMS) * BAR / 2 + 4
    lines = [row.title, row.reach().replace("`", "")]
    parts = [
        f'<text x="10" y="{centre - 6 + 14 * place:g}" fill="{colour}">{escape(line)}</text>'
        for place, (line, colour) in enumerate(zip(lines, ("black", "#777"), strict=True))
        if line
    ]
    for place, ((_, _, colour), value) in enumerate(zip(SYSTEMS, values, strict=True)):
        if value is None:
            continue
        y, width = top + place * BAR, max(1.0, BARS * value / longest)
        parts.append(
            f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>'
            f'<text x="{LABELS + width + 5:.1f}" y="{y + BAR - 3}">{value:,.{row.digits}f}</text>'
        )
    return parts
