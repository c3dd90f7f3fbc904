"""Strips over the common axis of time: one a kind of fault, one a partition."""

from collections import defaultdict
from collections.abc import Iterable

from . import words
from .axes import TimeAxis
from .leaders import NOBODY, Leaders, Stretch
from .markup import details, table, text
from .measured import Fault, Measured

LANES_MAX = 16
PARTITIONS_SHOWN_MAX = 24
COLOURS = 8  # of nodes, as page.css has them
LABEL_WIDTH_MIN = 35  # per mille; in a narrower stretch a leader's number has no room
ROWS_MAX = 400


def fault_lanes(found: Measured, axis: TimeAxis) -> str:
    """When which kind of fault struck, and whom."""
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for fault in found.faults:
        by_kind[fault.fault].append(fault)
    kinds = sorted(by_kind, key=lambda kind: (by_kind[kind][0].at_s, kind))
    shown, rest = kinds[:LANES_MAX], kinds[LANES_MAX:]
    lanes = [(kind, by_kind[kind]) for kind in shown]
    if rest:
        lanes.append(
            (f"{len(rest)} other kinds", [each for kind in rest for each in by_kind[kind]])
        )
    rows = "".join(_fault_lane(name, faults, axis, found.end_s) for name, faults in lanes)
    return f'<div class="chart strips"><h3>Faults <small>from the blow until healed</small></h3>{rows}</div>'


def _fault_lane(name: str, faults: Iterable[Fault], axis: TimeAxis, end_s: float) -> str:
    marks = []
    for each in faults:
        until = end_s if each.until_s is None else each.until_s
        x = axis.x(each.at_s)
        width = max(axis.x(until) - x, 0.0)
        title = f"{fault_sentence(each)}, {fault_time(each)}"
        kind = "blow" if each.until_s is not None else "blow open"
        marks.append(
            f'<rect class="{kind}" x="{x}" y="180" width="{width:.2f}" height="640"><title>{text(title)}</title></rect>'
        )
    return row(name, "".join(marks), "", f"{name}: {len(marks)}")


def fault_sentence(fault: Fault) -> str:
    if fault.what:
        return fault.what
    whom = f" of {', '.join(fault.nodes)}" if fault.nodes else ""
    return f"{fault.fault}{whom}"


def fault_time(fault: Fault) -> str:
    if fault.until_s is None:
        return f"from {fault.at_s:.1f} s, never seen healed"
    return f"{fault.at_s:.1f} s to {fault.until_s:.1f} s"


def leaders(found: Measured, axis: TimeAxis) -> str:
    """Who led which partition and who was in sync."""
    seen = found.leaders
    if not seen.of and not seen.controllers:
        return ""
    colours = {node: at % COLOURS + 1 for at, node in enumerate(seen.nodes)}
    rows = []
    if seen.controllers:
        rows.append(_leader_row("controller", seen.controllers, axis, colours, 0))
    names = seen.most_changed(PARTITIONS_SHOWN_MAX)
    rows += [
        _leader_row(name, seen.of[name], axis, colours, seen.copies.get(name, 0)) for name in names
    ]
    keys = "".join(
        f'<span class="key node n{colours[node]}">node {text(node)}</span>' for node in seen.nodes
    )
    keys += '<span class="key nobody">nobody leads</span><span class="key silent">nobody answered</span>'
    keys += '<span class="key less">below: not all in sync</span><span class="key alone">one alone</span>'
    left = len(seen.of) - len(names) + seen.left_out
    note = ""
    if left:
        note = f'<p class="quiet">{words.plural(left, "other partition")} changed less often; the table has them.</p>'
    if seen.is_full:
        note += (
            '<p class="quiet">So many changes were seen that the last ones are left out here.</p>'
        )
    return (
        f'<div class="chart strips leaders"><h3>Leaders and replicas in sync '
        f'<small>asked about once a second</small><span class="legend">{keys}</span></h3>{"".join(rows)}{note}</div>'
    )


def _leader_row(
    name: str, stretches: list[Stretch], axis: TimeAxis, colours: dict[str, int], copies: int
) -> str:
    shapes, labels = [], []
    for at, each in enumerate(stretches):
        x = axis.x(each.from_s)
        width = max(axis.x(each.to_s) - x, 1.0)
        kind = "nobody" if each.leader == NOBODY else f"node n{colours[each.leader]}"
        whose = "nobody" if each.leader == NOBODY else f"node {each.leader}"
        title = f"{name}: {whose}, {each.from_s:.0f} s to {each.to_s:.0f} s"
        if each.in_sync is not None:
            title += f", in sync: {', '.join(each.in_sync) or 'nobody'}"
        where = f'x="{x}" width="{width:.2f}"'
        top = 720 if copies else 1000
        shapes.append(
            f'<rect class="{kind}" {where} y="0" height="{top}"><title>{text(title)}</title></rect>'
        )
        if each.in_sync is not None and len(each.in_sync) < copies:
            less = "alone" if len(each.in_sync) <= 1 else "less"
            shapes.append(f'<rect class="{less}" {where} y="770" height="230"/>')
        changed = at == 0 or stretches[at - 1].leader != each.leader
        if changed and _until_next_leader(stretches, at, axis) >= LABEL_WIDTH_MIN:
            shown = "" if each.leader == NOBODY else text(each.leader)
            labels.append(f'<span style="left:{x / 10:g}%">{shown}</span>')
    return row(name, "".join(shapes), "".join(labels), f"{name}: {len(stretches)} stretches")


def _until_next_leader(stretches: list[Stretch], at: int, axis: TimeAxis) -> float:
    last = at
    while last + 1 < len(stretches) and stretches[last + 1].leader == stretches[at].leader:
        last += 1
    return axis.x(stretches[last].to_s) - axis.x(stretches[at].from_s)


def row(name: str, shapes: str, labels: str, described: str) -> str:
    return (
        f'<div class="row"><div class="y name" title="{text(name)}"><bdi>{text(name)}</bdi></div><div class="strip">'
        f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img"><title>{text(described)}</title>'
        f'<path class="base" d="M0 500H1000"/>{shapes}</svg>{labels}</div></div>\n'
    )


def leaders_table(seen: Leaders) -> str:
    if not seen.of:
        return ""
    rows: list[list[str]] = []
    for name, stretches in seen.of.items():
        for each in stretches:
            if len(rows) < ROWS_MAX:
                in_sync = "–" if each.in_sync is None else ", ".join(each.in_sync) or "nobody"
                span = f"{each.from_s:.0f} to {each.to_s:.0f} s"
                rows.append([f"<bdi>{text(name)}</bdi>", span, text(each.leader), text(in_sync)])
    total = sum(map(len, seen.of.values()))
    more = f", the first {len(rows)} of {words.count(total)} stretches" if total > len(rows) else ""
    inside = table(["partition", "when", "leader", "in sync"], rows, name="leaders over time")
    return details(f"Leaders as a table{more}", inside)
