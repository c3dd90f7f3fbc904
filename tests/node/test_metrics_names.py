"""One set of names: the code, the README's tables, alert rules and dashboards, by Prometheus' rules."""

import json
import pathlib
import re
from collections.abc import Iterator

import pytest
from fencepost.cluster.base.metrics import Declared, Kind
from fencepost.node.metrics.health import State
from fencepost.node.metrics.names import DECLARED
from fencepost.node.metrics.topics import wanted

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "node/metrics/README.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \|([^|]*)\| .+ \|$", re.MULTILINE)
BY_NAME = {each.name: each for each in DECLARED}
# Labels, and whether what they name is bounded by the code, by the number of nodes, or by `metrics.topics`.
BOUNDED = {
    "api", "coordinator", "door", "error", "outcome", "quota", "reason", "state", "store", "type", "was",
    "listener", "version", "python", "node", "cluster", "rack", "follower", "topic",
}  # fmt: skip


def in_readme() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = ROW.findall(README)
    assert len(rows) == len({name for name, _, _ in rows}), "a row stands there twice"
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_readme_has_every_metric_as_it_is_declared() -> None:
    declared = {each.name: (each.kind.value, each.labels) for each in DECLARED}
    assert in_readme() == declared


@pytest.mark.parametrize("metric", DECLARED, ids=lambda each: each.name)
def test_names_obey_the_rules_of_prometheus(metric: Declared) -> None:
    """prometheus.io/docs/practices/naming: a prefix, base units, `_total` for what only rises."""
    name = metric.name
    assert re.fullmatch(r"(fencepost|process)_[a-z][a-z0-9_]*[a-z0-9]", name)
    assert name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert not re.search(
        r"_(ms|millis\w*|minutes|hours|kb|mb|kib|mib|percent|count|bucket|sum)\b", name
    )
    for word, unit in (("duration", "seconds"), ("age", "seconds"), ("size", "bytes")):
        assert f"_{word}" not in name or unit in name, f"{name} has no unit"
    if metric.kind is Kind.HISTOGRAM:
        assert name.endswith("_seconds")
    assert metric.meaning.endswith(".") and "\n" not in metric.meaning


@pytest.mark.parametrize("metric", DECLARED, ids=lambda each: each.name)
def test_labels_are_bounded(metric: Declared) -> None:
    """Never a producer, client id, group or transactional id: each of their users would be a series."""
    assert set(metric.labels) <= BOUNDED


def test_the_readme_has_every_state_of_a_node() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (yes|no) \|$", README, re.MULTILINE)
    assert [name for name, _ in rows] == [state.value for state in State]
    assert [name for name, ready in rows if ready == "yes"] == [State.READY.value]


def is_known(name: str) -> bool:
    histogram = re.sub(r"_(bucket|sum|count)$", "", name)
    is_part = histogram != name and histogram in BY_NAME
    return name in BY_NAME or (is_part and BY_NAME[histogram].kind is Kind.HISTOGRAM)


def expressions(path: pathlib.Path) -> Iterator[str]:
    """The queries of a rule file or a dashboard; nothing else in them is about metrics."""
    text = path.read_text()
    if path.suffix == ".json":

        def walk(value: object) -> Iterator[str]:
            if isinstance(value, dict):
                for key, inner in value.items():
                    if key == "expr" and isinstance(inner, str):
                        yield inner
                    yield from walk(inner)
            elif isinstance(value, list):
                for inner in value:
                    yield from walk(inner)

        yield from walk(json.loads(text))
    else:
        yield from re.findall(r"^\s*(?:- )?expr: ?(.*(?:\n {8,}.*)*)", text, re.MULTILINE)


def test_rules_and_dashboards_name_metrics_that_exist() -> None:
    paths = [
        path
        for folder in ("deploy/prometheus", "deploy/grafana")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".yml", ".yaml", ".json")
    ]
    unknown = [
        (str(path.relative_to(ROOT)), name)
        for path in paths
        for query in expressions(path)
        for name in re.findall(r"(?<![\w:])(?:fencepost|process)_[a-z0-9_]+", query)
        if not is_known(name)
    ]
    assert unknown == []


def test_a_metric_that_does_not_exist_would_be_seen() -> None:
    assert not is_known("fencepost_unheard_of")
    assert not is_known("fencepost_replicas_bucket")
    assert is_known("fencepost_log_sync_seconds_bucket")


def test_topics_are_asked_for_by_name_and_pattern() -> None:
    assert wanted("none") is None
    assert wanted("") is None
    everything = wanted("all")
    assert everything is not None and everything("anything")
    some = wanted("orders, pay*-eu,none")
    assert some is not None
    asked = ["orders", "orders2", "payments-eu", "pay-eu", "pay-us", "xorders", "none"]
    assert [each for each in asked if some(each)] == ["orders", "payments-eu", "pay-eu"]
