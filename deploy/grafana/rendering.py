"""Boards as Grafana's classic JSON model has them: places on the grid, ids, targets, variables, links."""

from collections.abc import Sequence
from typing import Any, Final

from panels import WIDTH, Board, Panel, Query, Row, Variable, text

SCHEMA_VERSION: Final = 39  # Grafana 10.3 and later; newer ones migrate it as they load it
TAG: Final = "fencepost"
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


def rendered(board: Board, annotations: Sequence[Json]) -> Json:
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.question,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one cross hair over all panels
        "liveNow": False,
        "fiscalYearStartMonth": 0,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": board.since, "to": "now"},
        "timepicker": {},
        "weekStart": "",
        "links": [_links_to_all()],
        "annotations": {"list": list(annotations)},
        "templating": {"list": [_datasource(), *map(_variable, board.variables)]},
        "panels": _placed([text(board.answer), *board.panels]),
    }


def _placed(panels: Sequence[Panel | Row]) -> list[Json]:
    """Each as high up as it can be, and as far left; nothing above the row that it is in."""
    found: list[Json] = []
    heights = [0] * WIDTH  # of what stands in each column
    for number, panel in enumerate(panels, 1):
        if isinstance(panel, Row):
            y = max(heights)
            found.append(_row(panel, number, y))
            heights = [y + 1] * WIDTH
            continue
        tops = [max(heights[x : x + panel.width]) for x in range(WIDTH - panel.width + 1)]
        y = min(tops)
        x = tops.index(y)
        heights[x : x + panel.width] = [y + panel.height] * panel.width
        place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
        found.append(_panel(panel, number) | {"gridPos": place})
    return found


def _row(row: Row, number: int, y: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "panels": [],
        "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
    }


def _panel(panel: Panel, number: int) -> Json:
    made: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "options": panel.options,
    }
    if not panel.queries:
        return made | {"transparent": True}
    now = panel.kind in ("stat", "bargauge", "table")
    made |= {
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "targets": [
            _target(q, "ABCDEFGH"[i], panel.kind, now) for i, q in enumerate(panel.queries)
        ],
    }
    if panel.transformations:
        made["transformations"] = list(panel.transformations)
    if panel.link:
        made["links"] = [
            {
                "title": "More about this",
                "url": f"/d/{panel.link}?${{__url_time_range}}&${{__all_variables}}",
                "targetBlank": False,
            }
        ]
    return made


def _target(query: Query, ref: str, kind: str, now: bool) -> Json:
    return {
        "refId": ref,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": "table" if kind == "table" else "time_series",
        "instant": now,
        "range": not now,
    }


def _defaults(panel: Panel) -> Json:
    steps = [{"color": colour, "value": value} for colour, value in panel.thresholds]
    lines = panel.kind == "timeseries"
    words = {
        value: {"text": word, "color": colour, "index": place}
        for place, (value, (word, colour)) in enumerate(panel.mappings.items())
    }
    return {
        "unit": panel.unit,
        "color": {"mode": "palette-classic" if lines else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": [{"type": "value", "options": words}] if words else [],
        "custom": panel.custom,
        "noValue": "–",
        **panel.defaults,
    }


def _links_to_all() -> Json:
    return {
        "type": "dashboards",
        "title": "Other questions",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "current": {},
    }


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": f"variable-{variable.name}"},
        "regex": "",
        "refresh": 2,  # when the time range changes, so that a node that came later is there
        "sort": 1,
        "hide": 0,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
