"""The loop on three real nodes, in short; and that it fails when there is something to see."""

import pytest
from fencepost.chaos.harness import cluster_kill_loop
from fencepost.chaos.harness.cluster_kill_loop import replicas_differ
from fencepost.chaos.harness.local_cluster import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def faults(*names: str) -> list[str]:
    return [part for name in names for part in ("--fault", name)]


def test_nothing_is_lost_or_doubled_while_leaders_and_controllers_die(capsys) -> None:
    chosen = faults("kill leader", "kill controller", "kill any")
    code = cluster_kill_loop.main(["--seconds", "8", "--seed", "5", *chosen])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "kill" in printed and printed.splitlines()[-1] == "VALID"


def test_nothing_is_lost_or_doubled_when_all_die_or_a_leader_sleeps(capsys) -> None:
    chosen = faults("kill all", "kill majority", "pause leader", "stop cleanly")
    code = cluster_kill_loop.main(["--seconds", "8", "--seed", "6", *chosen])
    assert code == 0, capsys.readouterr().out


def test_a_cluster_that_drops_one_record_is_found_out(capsys) -> None:
    arguments = ["--seconds", "1", "--spoil", "drop", *faults("pause shortly")]
    assert cluster_kill_loop.main(arguments) == 1
    assert "lost" in capsys.readouterr().out


def test_a_replica_with_other_bytes_is_found_out(tmp_path) -> None:
    cluster = LocalCluster(tmp_path / "data", nodes=3)
    for node in cluster.nodes:
        folder = cluster.data / f"node-{node}" / "stream-0"
        folder.mkdir(parents=True)
        # The same bytes, rolled elsewhere.
        (folder / "00.log").write_bytes(b"0123456789"[:node])
        (folder / "05.log").write_bytes(b"0123456789"[node:])
    everywhere = {0: cluster.nodes}
    assert replicas_differ(cluster, everywhere) == []
    (cluster.data / "node-2" / "stream-0" / "05.log").write_bytes(b"23456788")
    assert "replicas of stream-0 differ" in replicas_differ(cluster, everywhere)[0]


def test_nodes_that_are_no_replicas_of_a_partition_are_not_asked_for_its_bytes(tmp_path) -> None:
    """Of five nodes three have a copy each; and one of these three that has none is found out."""
    cluster = LocalCluster(tmp_path / "data", nodes=5)
    for node in (2, 3, 5):
        folder = cluster.data / f"node-{node}" / "stream-0"
        folder.mkdir(parents=True)
        (folder / "00.log").write_bytes(b"0123456789")
    assert replicas_differ(cluster, {0: (5, 2, 3)}) == []
    assert "replicas of stream-0 differ" in replicas_differ(cluster, {0: (2, 3, 4)})[0]
