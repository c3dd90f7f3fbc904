"""`fencepost dev --nodes 3` with its real nodes, as a person sees it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.chaos.harness import asking
from fencepost.chaos.harness.local_cluster import LocalCluster, wait_for
from fencepost.node.main import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="needs prctl"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data") as cluster:
        yield cluster


def run(*words: str) -> str:
    """In a process of its own: another's client would know of this one's brokers."""
    command = [sys.executable, "-m", "fencepost.node.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout


def test_three_nodes_hold_three_copies_and_two_must_have_each_record(cluster, tmp_path) -> None:
    bootstrap = ("--bootstrap", cluster.bootstrap)
    assert run("topic", "create", "orders", *bootstrap) == "orders created\n"
    wait_for("three copies", lambda: cluster.in_sync("orders"), 40)
    [part] = asking.partitions(cluster.addresses, "orders")
    assert sorted(part.replicas) == [1, 2, 3]
    shown = run("config", "get", "--broker", "2", "min.insync.replicas", *bootstrap)
    assert "2" in shown.split()
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    cluster.kill(part.leader)  # the next leader has what was acknowledged
    run("produce", "orders", "--file", str(lines), *bootstrap)
    assert run("consume", "orders", *bootstrap) == "one\ntwo\n"


def test_the_same_command_on_the_same_folder_goes_on(cluster: LocalCluster, tmp_path) -> None:
    run("topic", "create", "orders", "--bootstrap", cluster.bootstrap)
    before = cluster.bootstrap
    assert cluster.stop() == 0
    cluster.start()
    assert cluster.bootstrap == before
    assert [p.topic for p in asking.partitions(cluster.addresses)] == ["orders"]
    assert (cluster.data / "peer.secret").stat().st_mode & 0o077 == 0


def test_a_node_started_again_serves_before_the_command_returns(cluster, capsys) -> None:
    cluster.kill(2)
    address = cluster.bootstrap_of(2)
    assert main(["dev", "--data", str(cluster.data), "--start", "2"]) == 0
    assert capsys.readouterr().out == f"ready {address}\n"
    assert 2 in asking.brokers(asking.addresses_of(address))


def test_a_setting_that_can_not_be_is_said_once(tmp_path: Path) -> None:
    words = ["dev", "--nodes", "3", "--port", "0", "--data", str(tmp_path / "d"), "--set", "a.b=c"]
    command = [sys.executable, "-m", "fencepost.node.main", *words]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.count("unknown setting a.b;") == 1
