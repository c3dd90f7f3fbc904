"""What a dashboard is made of: boards, rows and the kinds of panels that they show.

A board says what it asks and shows; places, ids and everything that is the same in all panels is `rendering.py`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

WIDTH: Final = 24  # columns of Grafana's grid
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"

Json = dict[str, Any]
# A colour and the value from which on it holds; the first has none.
Thresholds = Sequence[tuple[str, float | None]]
PLAIN: Final[Thresholds] = ((BLUE, None),)


def bad_from(value: float) -> Thresholds:
    return ((GREEN, None), (RED, value))


def watch_from(value: float) -> Thresholds:
    return ((GREEN, None), (YELLOW, value))


def worse_from(warn: float, bad: float) -> Thresholds:
    return ((GREEN, None), (YELLOW, warn), (RED, bad))


def good_from(value: float) -> Thresholds:
    return ((RED, None), (GREEN, value))


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`link` is the uid of the dashboard that answers the next question."""

    kind: str
    title: str
    description: str = ""
    unit: str = ""
    queries: Sequence[Query] = ()
    thresholds: Thresholds = PLAIN
    mappings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    width: int = 8
    height: int = 8
    options: Json = field(default_factory=dict)
    custom: Json = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    transformations: Sequence[Json] = ()
    link: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    title: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of the board. All of them unless somebody chooses."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    uid: str
    title: str
    question: str
    answer: str  # markdown at the top: how to read it
    panels: Sequence[Panel | Row]
    variables: Sequence[Variable]
    since: str = "now-1h"


# --- the kinds of panels --------------------------------------------------------------------------


def text(markdown: str, *, height: int = 3) -> Panel:
    return Panel(
        kind="text",
        title="",
        width=WIDTH,
        height=height,
        options={"mode": "markdown", "content": markdown, "code": {}},
    )


def stat(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "short",
    thresholds: Thresholds = PLAIN,
    mappings: Mapping[str, tuple[str, str]] | None = None,
    legend: str = "",
    width: int = 4,
    height: int = 4,
    link: str = "",
) -> Panel:
    """One number, now."""
    return Panel(
        kind="stat",
        title=title,
        description=description,
        unit=unit,
        queries=(Query(expr, legend),),
        thresholds=thresholds,
        mappings=mappings or {},
        width=width,
        height=height,
        link=link,
        options={
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "background" if len(thresholds) > 1 else "value",
            "graphMode": "none",
            "justifyMode": "center",
            "orientation": "auto",
            "textMode": "auto",
        },
    )


def graph(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    thresholds: Thresholds = PLAIN,
    width: int = 8,
    height: int = 8,
    stacked: bool = False,
    least: float | None = 0,
    link: str = "",
) -> Panel:
    """Lines over time. A threshold is a line across."""
    return Panel(
        kind="timeseries",
        title=title,
        description=description,
        unit=unit,
        queries=queries,
        thresholds=thresholds,
        width=width,
        height=height,
        link=link,
        options={
            "legend": {
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        custom={
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if len(thresholds) > 1 else "off"},
        },
        defaults={} if least is None else {"min": least},
    )


def states(
    title: str,
    description: str,
    query: Query,
    *,
    mappings: Mapping[str, tuple[str, str]],
    width: int = 12,
    height: int = 6,
) -> Panel:
    """A bar for each series, coloured by what it is in: `mappings` has value -> (word, colour)."""
    return Panel(
        kind="state-timeline",
        title=title,
        description=description,
        unit="none",
        queries=(query,),
        mappings=mappings,
        width=width,
        height=height,
        options={
            "mergeValues": True,
            "showValue": "auto",
            "alignValue": "left",
            "rowHeight": 0.8,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "tooltip": {"mode": "single", "sort": "none"},
        },
        custom={"lineWidth": 0, "fillOpacity": 80},
    )


def bars(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str = "short",
    thresholds: Thresholds = PLAIN,
    width: int = 8,
    height: int = 8,
    link: str = "",
) -> Panel:
    """Who has how much, now; the longest bar first."""
    return Panel(
        kind="bargauge",
        title=title,
        description=description,
        unit=unit,
        queries=(query,),
        thresholds=thresholds,
        width=width,
        height=height,
        link=link,
        options={
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "horizontal",
            "displayMode": "gradient",
            "valueMode": "color",
            "showUnfilled": True,
            "minVizHeight": 10,
            "minVizWidth": 0,
        },
        defaults={"min": 0},
    )


def table(
    title: str,
    description: str,
    query: Query,
    *,
    columns: Mapping[str, str],
    unit: str = "short",
    thresholds: Thresholds = PLAIN,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """The labels of a query and its value, now; `columns` has label -> heading, in order."""
    order = {name: place for place, name in enumerate(columns)}
    return Panel(
        kind="table",
        title=title,
        description=description,
        unit=unit,
        queries=(query,),
        thresholds=thresholds,
        width=width,
        height=height,
        options={"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
        custom={"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False},
        transformations=(
            {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
            {
                "id": "organize",
                "options": {"indexByName": order, "renameByName": dict(columns)},
            },
        ),
    )
