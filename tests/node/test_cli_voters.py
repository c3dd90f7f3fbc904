"""Voters replaced by a person, on real processes, while somebody writes."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.node.main import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor needs prctl"),
]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data", nodes=6) as running:
        yield running


@pytest.fixture
def run(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", cluster.bootstrap)

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return run


def voters(run: Run) -> list[int]:
    rows = json.loads(run("node", "voters", "--json")[1])
    return [row["node"] for row in rows if row["role"] == "votes"]


class Writer:
    """A few records at a time, all of which must be acknowledged."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.failed: list[object] = []
        self.done = 0
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def write(self) -> None:
        for number in range(50):
            self._producer.produce("orders", b"%d" % number, on_delivery=self._told)
        assert self._producer.flush(60) == 0
        assert self.failed == []

    def _told(self, error: object, _message: object) -> None:
        if error is None:
            self.done += 1
        else:
            self.failed.append(error)


def test_a_person_replaces_all_three_voters_while_somebody_writes(
    cluster: LocalCluster, run: Run
) -> None:
    writer = Writer(cluster)
    assert run("topic", "create", "orders", "--partitions", "3")[0] == 0
    writer.write()
    assert voters(run) == [1, 2, 3, 4, 5]
    code, said, told = run("node", "voters", "remove", "5")
    assert (code, "Leave controller.quorum.voters as it is" in said) == (0, True)
    assert "4 voters bear no more than 3 do" in told
    assert run("node", "voters", "remove", "4")[0::2] == (0, "")
    for old, new in ((1, 4), (2, 5), (3, 6)):
        code, said, _ = run("node", "voters", "add", str(new))
        assert (code, said.splitlines()[0]) == (0, f"node {new} votes now")
        assert "bear no more than 3 do: add one more, or remove one." in said
        assert "with 4 no node starts" in said
        writer.write()
        code, said, _ = run("node", "voters", "remove", str(old))
        assert (code, said.splitlines()[0]) == (0, f"node {old} votes no more")
        assert f", {new} in every node's controller.quorum.voters" in said
        writer.write()
    assert voters(run) == [4, 5, 6]
    code, _, said = run("node", "voters", "remove", "1")
    assert code == 1 and "Node 1 is no voter. `fencepost node voters` shows who votes." in said
    code, _, said = run("node", "voters", "add", "9")
    assert code == 1 and "there is no node 9; there are 1, 2, 3, 4, 5, 6" in said
    cluster.kill(4)  # one of three voters of now
    writer.write()
    cluster.start_again(4)
    cluster.kill(1)  # which votes no more
    cluster.start_again(1)
    writer.write()
    assert voters(run) == [4, 5, 6]
    assert writer.done == 9 * 50
