"""Which node ran which build, and when, of a run in which not all ran the same: told by the lines of an upgrade."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from .axes import TimeAxis
from .markup import details, table, text
from .measured import Measured
from .run_folder import number_of, text_of
from .strips import row

NEWER = "newer"
BUILDS = {"older": "the older build", NEWER: "today's build"}
STEPS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Stretch:
    node: str
    build: str
    from_s: float
    to_s: float


def stretches(found: Measured) -> list[Stretch]:
    """By node, in the order of time."""
    steps: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for fault in found.faults:
        for each in fault.builds[:STEPS_MAX]:
            step = _step(each)
            if step is not None:
                node, at_s, build = step
                steps[node].append((at_s, build))
    made = []
    for node in sorted(steps, key=lambda node: (len(node), node)):
        taken = sorted(steps[node], key=lambda each: each[0])
        ends = [*(at_s for at_s, _ in taken[1:]), max(found.end_s, taken[-1][0])]
        made += [
            Stretch(node, build, at_s, to_s)
            for (at_s, build), to_s in zip(taken, ends, strict=True)
        ]
    return made


def _step(each: Any) -> tuple[str, float, str] | None:
    if not isinstance(each, dict):
        return None
    at_s, build = number_of(each.get("at_s")), text_of(each.get("build"))
    return None if at_s is None or build not in BUILDS else (text_of(each.get("node")), at_s, build)


def strip(found: Measured, axis: TimeAxis) -> str:
    by_node: dict[str, list[Stretch]] = defaultdict(list)
    for each in stretches(found):
        by_node[each.node].append(each)
    if not by_node:
        return ""
    rows = ""
    for node, some in by_node.items():
        shapes = "".join(_shape(each, axis) for each in some)
        rows += row(f"node {node}", shapes, "", f"node {node}: {len(some)} starts")
    keys = "".join(f'<span class="key {build}">{said}</span>' for build, said in BUILDS.items())
    return (
        '<div class="chart strips builds"><h3>Builds <small>from the start of each on</small>'
        f'<span class="legend">{keys}</span></h3>{rows}</div>'
    )


def _shape(each: Stretch, axis: TimeAxis) -> str:
    x = axis.x(each.from_s)
    width = max(axis.x(each.to_s) - x, 1.0)
    title = f"node {each.node}: {BUILDS[each.build]}, {each.from_s:.1f} s to {each.to_s:.1f} s"
    return (
        f'<rect class="{each.build}" x="{x}" y="180" width="{width:.2f}" height="640">'
        f"<title>{text(title)}</title></rect>"
    )


def as_table(found: Measured) -> str:
    rows = [
        [text(each.node), f"{each.from_s:.1f}", f"{each.to_s:.1f}", text(BUILDS[each.build])]
        for each in stretches(found)
    ]
    if not rows:
        return ""
    head = ["node", "from s", "to s", "ran"]
    return details("Builds as a table", table(head, rows, numbers=(1, 2), name="builds over time"))
