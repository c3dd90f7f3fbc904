"""What makes a dashboard readable, and loadable: there is no Grafana here to look at it with."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from promql import family, selectors

Json = Mapping[str, Any]
WIDTH = 24
# Of Grafana's units (@grafana/data, valueFormats/categories.ts), those that we use.
UNITS = {"none", "short", "s", "bytes", "Bps", "ops", "reqps", "percentunit"}
COLOURS = {"green", "yellow", "red", "blue"}
KINDS = {"text", "row", "stat", "timeseries", "state-timeline", "bargauge", "table"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Variables that Grafana fills in by itself.
OWN = {"__rate_interval", "__url_time_range", "__all_variables", "datasource"}
_COUNTERS = re.compile(r"_(total|bucket|count|sum)$")


def faults(board: Json, uids: set[str], known: set[str]) -> list[str]:
    """Nothing for a board that is in order; `uids` are those of all boards, `known` the metrics that there are."""
    found = [*_of_the_board(board), *_of_places(board["panels"])]
    for panel in board["panels"]:
        if panel["type"] not in ("text", "row"):
            name = f"{panel['title']!r}"
            told = (_of_a_panel(panel), _of_queries(panel, known), _of_links(panel, uids))
            found += [f"{name}: {fault}" for faults_ in told for fault in faults_]
    return found


def _of_the_board(board: Json) -> Iterator[str]:
    for field in ("uid", "title", "description", "tags", "schemaVersion", "time", "refresh"):
        if not board.get(field):
            yield f"the board has no {field}"
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", board["uid"]):
        yield f"uid {board['uid']!r}: at most 40 letters, digits, - and _"
    links = [link for link in board["links"] if link["type"] == "dashboards"]
    if not any(set(link["tags"]) <= set(board["tags"]) for link in links):
        yield "the board has no links to the other ones"
    if board["panels"][0]["type"] != "text":
        yield "the board does not begin with how to read it"
    numbers = [panel["id"] for panel in board["panels"]]
    if len(numbers) != len(set(numbers)):
        yield "two panels have one id"
    declared = {each["name"] for each in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", _queries_of(board)))
    if undeclared := sorted(used - declared - OWN):
        yield f"variables that nobody declares: {undeclared}"
    if unused := sorted(declared - used - {"datasource"}):
        yield f"variables that nobody uses: {unused}"


def _queries_of(board: Json) -> str:
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    variables = [
        each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"
    ]
    return "\n".join([*panels, *variables, *(m["expr"] for m in board["annotations"]["list"])])


def _of_places(panels: list[Json]) -> Iterator[str]:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place, name = panel["gridPos"], panel["title"] or panel["type"]
        if place["x"] < 0 or place["x"] + place["w"] > WIDTH or min(place["w"], place["h"]) < 1:
            yield f"{name!r} lies outside of the {WIDTH} columns: {place}"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if (other := taken.setdefault((x, y), name)) != name:
                    yield f"{name!r} lies over {other!r}"
                    return


def _of_a_panel(panel: Json) -> Iterator[str]:
    if panel["type"] not in KINDS:
        yield f"no kind of panel: {panel['type']}"
    for field in ("title", "description"):
        if not panel[field]:
            yield f"no {field}"
    if not panel["description"].endswith("."):
        yield "the description is no sentence"
    if panel["datasource"] != DATASOURCE:
        yield f"another datasource: {panel['datasource']}"
    defaults = panel["fieldConfig"]["defaults"]
    if defaults["unit"] not in UNITS:
        yield f"no unit of Grafana's: {defaults['unit']!r}"
    steps = defaults["thresholds"]["steps"]
    if steps[0]["value"] is not None:
        yield "the first threshold holds from nothing on"
    values = [step["value"] for step in steps[1:]]
    if values != sorted(values) or not {step["color"] for step in steps} <= COLOURS:
        yield f"thresholds out of order, or of no colour: {steps}"
    if panel["type"] == "stat" and defaults["unit"] == "s" and len(steps) < 2:
        yield "a time that nobody says is good or bad"


def _of_queries(panel: Json, known: set[str]) -> Iterator[str]:
    targets = panel["targets"]
    if not targets or len({target["refId"] for target in targets}) != len(targets):
        yield "no queries, or two of one name"
    for target in targets:
        expr = target["expr"]
        if target["datasource"] != DATASOURCE or target["instant"] == target["range"]:
            yield f"{target['refId']}: which datasource, now or over time?"
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            groups = re.findall(r"\bby \(([^)]*)\)", expr)
            if not all(label in group for group in groups):
                yield f"the legend names {label}, which the query does not keep"
        if len(targets) > 1 and target["legendFormat"] == "__auto":
            yield f"{target['refId']}: several lines, and no name for this one"
        for name, _ in selectors(expr):
            if family(name) not in known and name not in known:
                yield f"no node tells {name}"
            if _COUNTERS.search(name) and not _is_rated(name, expr):
                yield f"{name} only ever grows: show its rate"
        if re.search(r"(rate|increase)\([^$]*?\[\d", expr):
            yield "a fixed range: take $__rate_interval, or zooming out misses what happened"


def _is_rated(name: str, expr: str) -> bool:
    if re.search(rf"(rate|increase)\({re.escape(name)}\b", expr):
        return True
    return name.endswith(("_sum", "_count")) and " / " in expr  # a mean since the start


def _of_links(panel: Json, uids: set[str]) -> Iterator[str]:
    for link in panel.get("links", []):
        uid = link["url"].removeprefix("/d/").partition("?")[0]
        if uid not in uids:
            yield f"leads to {uid}, which is not there"
