"""Rules, dashboards and the table of metrics, read from where they are kept."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
KUBERNETES = ROOT / "deploy" / "kubernetes"
TABLE = ROOT / "node" / "metrics" / "README.md"
# Prometheus' own.
BUILT_IN = {"up", "ALERTS"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and where it stands. `kind`: panel, annotation, variable, rule or alert."""

    where: str
    expr: str
    kind: str = "panel"


@cache
def rule_files() -> tuple[str, ...]:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    return tuple(config["rule_files"])


def rules() -> Iterator[dict[str, Any]]:
    for file in rule_files():
        for group in yaml.safe_load((PROMETHEUS / file).read_text())["groups"]:
            yield from group["rules"]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def asked_by_rules() -> list[Asked]:
    return [
        Asked(rule["alert"], rule["expr"], "alert")
        if "alert" in rule
        else Asked(rule["record"], rule["expr"], "rule")
        for rule in rules()
    ]


@cache
def boards() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(path.read_text()) for path in sorted(GRAFANA.glob("dashboards/*.json")))


def asked_by_board(board: dict[str, Any]) -> Iterator[Asked]:
    title = board["title"]
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield Asked(f"{title} / {panel['title']} / {target['refId']}", target["expr"])
    for mark in board["annotations"]["list"]:
        yield Asked(f"{title} / mark {mark['name']}", mark["expr"], "annotation")
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found is not None, f"{title}: what does {variable['query']} ask for?"
            yield Asked(f"{title} / variable {variable['name']}", found[1], "variable")


def asked_by_boards() -> list[Asked]:
    return [asked for board in boards() for asked in asked_by_board(board)]


def told_metrics() -> set[str]:
    """Every name in the first column of the tables in node/metrics/README.md."""
    return set(re.findall(r"^\| `(\w+)` \|", TABLE.read_text(), re.MULTILINE))
