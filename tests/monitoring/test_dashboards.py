"""The dashboards: made by the generator, readable, linked, and of metrics that a node tells."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board_rules import faults
from promql import filled_in, quicker_expression, selectors, shown_always
from promtool import promtool

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install -e '.[test]'")
from what_is_watched import (  # noqa: E402
    BUILT_IN,
    GRAFANA,
    KUBERNETES,
    PROMETHEUS,
    asked_by_boards,
    asked_by_rules,
    boards,
    recorded,
    told_metrics,
)

UIDS = {board["uid"] for board in boards()}
QUESTIONS = {
    "fencepost-healthy": "Is it healthy?",
    "fencepost-slow": "Who is slow?",
    "fencepost-transactions": "Where is my transaction?",
    "fencepost-restart": "Is it safe to restart?",
}


def known() -> set[str]:
    return told_metrics() | recorded() | BUILT_IN


def test_what_is_committed_is_what_the_generator_writes() -> None:
    done = subprocess.run(
        [sys.executable, str(GRAFANA / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def test_there_is_one_board_for_each_question() -> None:
    assert {board["uid"]: board["description"] for board in boards()} == QUESTIONS


@pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])
def test_a_board_is_in_order(board: dict[str, Any]) -> None:
    assert faults(board, UIDS, known()) == []


def spoil_place(board: dict[str, Any]) -> None:
    board["panels"][3]["gridPos"] = dict(board["panels"][2]["gridPos"])


def spoil_unit(board: dict[str, Any]) -> None:
    board["panels"][2]["fieldConfig"]["defaults"]["unit"] = "parsecs"


def spoil_name(board: dict[str, Any]) -> None:
    board["panels"][2]["targets"][0]["expr"] = 'sum(fencepost_happiness{cluster=~"$cluster"})'


def spoil_variable(board: dict[str, Any]) -> None:
    board["panels"][2]["targets"][0]["expr"] = 'sum(fencepost_replicas{rack="$rack"})'


def spoil_legend(board: dict[str, Any]) -> None:
    target = board["panels"][2]["targets"][0]
    target["expr"] = "sum by (instance) (fencepost_replicas)"
    target["legendFormat"] = "{{topic}}"


def spoil_counter(board: dict[str, Any]) -> None:
    board["panels"][2]["targets"][0]["expr"] = "sum(fencepost_requests_total)"


def spoil_link(board: dict[str, Any]) -> None:
    board["panels"][2]["links"] = [{"url": "/d/fencepost-nowhere?x"}]


def spoil_description(board: dict[str, Any]) -> None:
    board["panels"][2]["description"] = ""


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_place, "lies over"),
        (spoil_unit, "no unit of Grafana's"),
        (spoil_name, "no node tells fencepost_happiness"),
        (spoil_variable, "nobody declares: ['rack']"),
        (spoil_legend, "names topic, which the query does not keep"),
        (spoil_counter, "only ever grows"),
        (spoil_link, "leads to fencepost-nowhere"),
        (spoil_description, "no description"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_board_that_is_not_in_order_is_seen(
    spoil: Callable[[dict[str, Any]], None], said: str
) -> None:
    board = copy.deepcopy(boards()[0])
    spoil(board)
    assert any(said in fault for fault in faults(board, UIDS, known()))


def test_grafana_finds_its_prometheus_and_the_boards() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    (source,) = sources["datasources"]
    assert source["type"] == "prometheus" and source["isDefault"]
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    # $__rate_interval is made of it: with another number graphs have holes.
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/fencepost.yml").read_text())[
        "providers"
    ]
    assert provider["type"] == "file" and not provider["allowUiUpdates"]


def test_kubernetes_names_the_job_as_the_rules_do() -> None:
    """The Operator would name it after the Service; then no rule finds a node."""
    monitor = yaml.safe_load((KUBERNETES / "service-monitor.yaml").read_text())["spec"]
    assert monitor["selector"]["matchLabels"][monitor["jobLabel"]] == "fencepost"
    (endpoint,) = monitor["endpoints"]
    assert "cluster" in {each["targetLabel"] for each in endpoint["relabelings"]}
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert endpoint["interval"] == config["global"]["scrape_interval"]


def test_kubernetes_names_a_node_by_its_pod() -> None:
    """Else `instance` is an address, which nobody knows, and another one after every move: a node that dies of being moved
    about is a new one each time, and FencepostNodeRestarting counts one start of each."""
    (endpoint,) = yaml.safe_load((KUBERNETES / "service-monitor.yaml").read_text())["spec"][
        "endpoints"
    ]
    (named,) = [each for each in endpoint["relabelings"] if each["targetLabel"] == "instance"]
    assert named["sourceLabels"] == ["__meta_kubernetes_pod_name"]


@pytest.mark.needs("prometheus")
@pytest.mark.parametrize("place", ["is it healthy? / Nodes not ready", "restart? / Nodes down"])
def test_a_node_that_prometheus_has_lost_is_no_node_less_to_count(
    place: str, tmp_path: Path
) -> None:
    """A pod that waits for a machine is no target: with those that are left alone, all would be well."""
    (asked,) = [each for each in asked_by_boards() if f"{place} /" in each.where]
    said = {
        'up{job="fencepost",cluster="main",instance="a"}': "1x6",
        'up{job="fencepost",cluster="main",instance="b"}': "1x6",
        'fencepost_node_ready{cluster="main",instance="a"}': "1x6",
        'fencepost_node_ready{cluster="main",instance="b"}': "1x6",
        'fencepost_cluster_brokers{cluster="main",instance="a",state="active"}': "2x6",
        'fencepost_cluster_brokers{cluster="main",instance="a",state="fenced"}': "1x6",
    }
    expr = filled_in(asked.expr, {"cluster": ".*", "node": ".*"})
    expected = {"expr": expr, "eval_time": "30s", "exp_samples": [{"labels": "{}", "value": 1}]}
    series = [{"series": name, "values": values} for name, values in said.items()]
    test = {"interval": "10s", "input_series": series, "promql_expr_test": [expected]}
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    promtool("test", "rules", file.name, where=tmp_path)


def test_the_board_shows_each_reason_of_the_yes_or_no() -> None:
    """Else it says no, and all below it is green."""
    answer = "cluster:fencepost_restart_is_safe:bool"
    (rule,) = [each for each in asked_by_rules() if each.where == answer]
    shown = {
        name
        for asked in asked_by_boards()
        if asked.where.startswith("Fencepost: is it safe to restart? /")
        for name, _ in selectors(asked.expr)
    }
    assert {name for name, _ in selectors(rule.expr)} <= shown


def test_every_query_of_a_board_asks_for_the_chosen_cluster() -> None:
    silent = [
        asked.where
        for asked in asked_by_boards()
        if "cluster=~" not in asked.expr and not asked.where.endswith("variable cluster")
    ]
    assert silent == []


# --- how expressions are read ---------------------------------------------------------------------


def test_the_series_of_an_expression_are_found() -> None:
    expr = (
        'sum by (cluster, le) (rate(fencepost_a_seconds_bucket{api="x"}[5m])) / on (up) '
        "instance:fencepost_b:p99_5m > up"
    )
    assert selectors(expr) == [
        ("fencepost_a_seconds_bucket", '{api="x"}'),
        ("instance:fencepost_b:p99_5m", ""),
        ("up", ""),
    ]


def test_a_rule_that_does_not_fire_still_says_what_it_sees() -> None:
    assert shown_always('up{job="a", b!="c > d"} == 0') == 'up{job="a", b!="c > d"} == bool 0'
    assert shown_always("a > 1 and b <= on (x) c") == "a > bool 1 and b <= bool on (x) c"
    assert shown_always("a == bool 0") == "a == bool 0"


def test_waits_and_ranges_go_faster_and_limits_stay() -> None:
    assert quicker_expression("rate(a[5m]) > 60", 20) == "rate(a[15000ms]) > 60"
    assert quicker_expression("max_over_time(a[1h:1m] offset 10s)", 10) == (
        "max_over_time(a[360000ms:6000ms] offset 1000ms)"
    )


def test_variables_are_filled_in_whole() -> None:
    assert filled_in('a{b=~"$node", c="${node_id}"}', {"node": ".*", "node_id": "3"}) == (
        'a{b=~".*", c="3"}'
    )
    with pytest.raises(AssertionError, match="nobody declares"):
        filled_in("rate(a[$__interval])", {})
