"""A real Prometheus over a real cluster: every query has an answer, and a killed leader is noticed, and forgotten.

One cluster for all of this file, whose time runs 25 times as fast for Prometheus: a rule's minute is 2.4 s.
The tests go on from each other in the order in which they stand.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="needs PyYAML: pip install -e '.[test]'")
pytest.importorskip("confluent_kafka")
from fencepost.chaos.harness.local_cluster import LocalCluster
from load import Load
from prometheus_server import PrometheusServer, Refused, Series, admin_port
from promql import filled_in, quicker_expression, selectors, shown_always
from what_is_watched import Asked, asked_by_boards, asked_by_rules

pytestmark = [pytest.mark.slow, pytest.mark.needs("prometheus"), pytest.mark.timeout(500)]
FACTOR = 25
WAIT_S = 180.0  # on a quiet machine five seconds; beside all other tests on a slow one more than a minute
VARIABLES = {"cluster": ".*", "node": ".*", "topic": ".*", "__rate_interval": "5m"}
SETTINGS = ("metrics.topics=all",)
SAFE = "cluster:fencepost_restart_is_safe:bool"
LACKING = "sum(fencepost_cluster_under_replicated_partitions) > bool 0"
# How fast this machine is, and what else runs on it, is no matter here.
SLOW = {
    f"Fencepost{name}"
    for name in ("FlushSlow", "LoopLag", "ProduceSlow", "QuorumCommitSlow", "ScrapeSlow")
}
DECISION = "cluster:fencepost_quorum_commit_seconds:p99_5m"
# A restart of a whole two minutes is one to tell of, and on a busy machine it may be one here.
A_RESTART_S = 110
TOO_LONG_AWAY = {"FencepostNodeDown", "FencepostUnderReplicated"}
# They tell of what was, for a while.
AFTER_A_KILL = {"FencepostUncleanStart"}
# Marks across the graphs: where nothing happened there is none.
ONLY_NOW_AND_THEN = {"annotation"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[LocalCluster]:
    with LocalCluster(folder / "data", settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def load(cluster: LocalCluster) -> Iterator[Load]:
    with Load(cluster.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(folder: Path, cluster: LocalCluster, load: Load) -> Iterator[PrometheusServer]:
    targets = {
        f"fencepost-{node}:9644": f"127.0.0.1:{admin_port(cluster, node)}" for node in cluster.nodes
    }
    with PrometheusServer(folder, targets, factor=FACTOR) as running:
        running.until("all nodes are scraped", lambda: running.targets_up() == 4, WAIT_S)
        load.until(transactions=20, consumed=200, wait_s=WAIT_S)
        yield running


def test_under_load_no_alert_fires(prometheus: PrometheusServer) -> None:
    time.sleep(4)  # more than a minute and a half of the rules' time
    assert prometheus.firing() - SLOW == set()
    assert prometheus.rules_at_fault() == []


def test_a_restart_wakes_nobody(prometheus: PrometheusServer, cluster: LocalCluster) -> None:
    fired: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            fired.update(prometheus.firing())

    watching = threading.Thread(target=watch, name="watch")
    watching.start()
    stopped = time.monotonic()
    try:
        cluster.stop_node(1)
        cluster.start_again(1)
        prometheus.until("node 1 is ready", lambda: ready(prometheus) == 3, WAIT_S)
    finally:
        over.set()
        watching.join()
    away_s = (time.monotonic() - stopped) * FACTOR
    assert fired - SLOW - (TOO_LONG_AWAY if away_s > A_RESTART_S else set()) == set()


def ready(prometheus: PrometheusServer) -> float:
    return sum(value for _, value in prometheus.values("fencepost_node_ready"))


def test_a_killed_leader_is_noticed_and_forgotten_when_it_is_back(
    prometheus: PrometheusServer, cluster: LocalCluster, load: Load
) -> None:
    victim = cluster.leader_of(load.topic, 0)
    with down(cluster, victim):
        took = {
            name: prometheus.until_fires(name, WAIT_S)
            for name in ("FencepostNodeDied", "FencepostNodeDown")
        }
        address = f"127.0.0.1:{admin_port(cluster, victim)}"
        assert ("FencepostNodeDown", "firing", address) in prometheus.alerts()
        # Two of three are enough: nobody is refused, and no alert says so.
        assert not prometheus.firing() & {"FencepostOfflinePartitions", "FencepostUnderMinIsr"}
        prometheus.until("partitions lack a replica", lambda: is_at(prometheus, LACKING, 1), WAIT_S)
        prometheus.until("a restart is not safe", lambda: is_at(prometheus, SAFE, 0), WAIT_S)
    took["all clear"] = until_clear(prometheus)
    print(", ".join(f"{what}: {seconds:.1f} s" for what, seconds in took.items()))
    prometheus.until("a restart is safe again", lambda: is_at(prometheus, SAFE, 1), WAIT_S)
    assert load.refused == []


@contextmanager
def down(cluster: LocalCluster, *nodes: int) -> Iterator[None]:
    """Killed, and started again whatever comes."""
    for node in nodes:
        cluster.kill(node)
    try:
        yield
    finally:
        for node in nodes:
            cluster.start_again(node)


def is_at(prometheus: PrometheusServer, expr: str, value: float) -> bool:
    return [each for _, each in prometheus.values(expr)] == [value]


def until_clear(prometheus: PrometheusServer) -> float:
    return prometheus.until(
        "the alerts clear", lambda: prometheus.firing() <= AFTER_A_KILL | SLOW, WAIT_S
    )


def test_a_node_that_was_killed_says_so(prometheus: PrometheusServer) -> None:
    prometheus.until_fires("FencepostUncleanStart", WAIT_S)


def test_a_cluster_without_a_majority_has_no_controller_until_one_is_back(
    prometheus: PrometheusServer, cluster: LocalCluster
) -> None:
    with down(cluster, 2, 3):
        for name in ("FencepostNoController", "FencepostNoQuorum"):
            prometheus.until_fires(name, WAIT_S)
    until_clear(prometheus)


def test_every_query_of_every_board_and_rule_has_an_answer(
    prometheus: PrometheusServer, load: Load
) -> None:
    """Last, since the list of alerts has an answer only when one fires."""
    load.one_that_is_too_large()
    load.make_topic("something-to-decide")
    prometheus.until(
        "a decision is seen", lambda: numbers(prometheus.values(DECISION)) != [], WAIT_S
    )
    asked = [*asked_by_boards(), *asked_by_rules()]
    deadline = time.monotonic() + WAIT_S  # on a busy machine scrapes are late
    while nothing := [
        f"{each.where}: {fault}" for each in asked for fault in unanswered(prometheus, each)
    ]:
        assert time.monotonic() < deadline, "\n".join(nothing)
        asked = [each for each in asked if any(each.where in fault for fault in nothing)]
        time.sleep(0.5)


def test_a_query_without_an_answer_is_seen(prometheus: PrometheusServer) -> None:
    def faults(expr: str) -> str:
        return "; ".join(unanswered(prometheus, Asked("somewhere", expr)))

    assert faults("sum(fencepost_happiness) or vector(0)") == "there is no fencepost_happiness"
    assert "there is no" in faults('fencepost_half_messages{state="lost"}')
    assert "no value" in faults("fencepost_node_ready > 1")
    assert "parse error" in faults("sum by fencepost_node_ready")
    prometheus.until("an answer", lambda: faults("sum(fencepost_node_ready)") == "", WAIT_S)


def unanswered(prometheus: PrometheusServer, asked: Asked) -> Iterator[str]:
    """Why, if a person would look at an empty panel, or an alert could never fire."""
    expr = quicker_expression(filled_in(asked.expr, VARIABLES), FACTOR)
    for name, matchers in selectors(expr):
        if name != "ALERTS" and not prometheus.values(f"count({name}{matchers})"):
            yield f"there is no {name}{matchers}"
    try:
        found = prometheus.values(shown_always(expr) if asked.kind == "alert" else expr)
    except Refused as refused:
        yield str(refused)
        return
    if asked.kind not in ONLY_NOW_AND_THEN and "absent(" not in expr and not numbers(found):
        yield f"no value: {expr}"


def numbers(found: Series) -> list[float]:
    return [value for _, value in found if not math.isnan(value)]
