"""The harness for several nodes: what it kills, pauses and starts again, and that it leaves nothing behind."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.chaos.harness import local_cluster
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.processes import DidNotStart

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and needs prctl"),
]
NODES = 3


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder) / "data", nodes=NODES)
        yield cluster
        cluster.close()


def there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_node_that_does_not_serve_in_time_did_not_start(tmp_path, monkeypatch) -> None:
    """Whoever knows only of `DidNotStart` takes anything else for a broken promise."""
    patient = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(local_cluster, "fencepost_command", lambda: patient)
    cluster = LocalCluster(tmp_path / "data", ready_timeout_s=0.2)
    cluster.supervisor.log.touch()
    with pytest.raises(DidNotStart, match=r"node 2 does not serve within 0\.2 s"):
        cluster.start_again(2)


@pytest.mark.slow
def test_a_cluster_with_a_paused_node_ends_with_its_block(cluster: LocalCluster) -> None:
    with cluster:
        pids = [cluster.pid(node) for node in cluster.nodes]
        cluster.pause(NODES)
        assert cluster.runs(NODES) and NODES not in cluster.awake
    assert not any(map(there, pids))


@pytest.mark.slow
def test_a_node_killed_in_the_middle_is_started_again_where_it_was(cluster: LocalCluster) -> None:
    with cluster:
        first = cluster.pid(1)
        cluster.kill(1)
        assert not there(first) and not cluster.runs(1)
        cluster.start_again(1)
        assert cluster.pid(1) != first and there(cluster.pid(1))
        assert cluster.stop() == 0


@pytest.mark.slow
def test_nothing_outlives_a_run_that_failed(cluster: LocalCluster) -> None:
    pids = []

    def fail() -> None:
        with cluster:
            pids.extend(cluster.pid(node) for node in cluster.nodes)
            cluster.pause(1)
            raise RuntimeError("the run failed")

    with pytest.raises(RuntimeError):
        fail()
    assert not any(map(there, pids))
    assert os.path.exists(cluster.data / "node-1" / "log")
