"""The commands that move things and say what is offline, against three real nodes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.chaos.harness.processes import fencepost_command
from fencepost.node.main import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor needs prctl"),
]
Run = Callable[..., tuple[int, str, str]]
# So that a node of three can be drained although somebody has read.
SETTINGS = ["offsets.topic.num.partitions=3", "offsets.topic.replication.factor=1"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("cluster") / "data"
    with LocalCluster(data, settings=SETTINGS) as running:
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


def placed(run: Run, topic: str) -> list[list[int]]:
    return [each["replicas"] for each in json.loads(run("partition", "list", topic, "--json")[1])]


def moving(run: Run, topic: str) -> bool:
    rows = json.loads(run("partition", "list", topic, "--json")[1])
    return any(each["moving_to"] for each in rows)


def replicas_of(run: Run, node: int) -> int:
    rows = json.loads(run("node", "list", "--json")[1])
    return next(row["replicas"] for row in rows if row["node"] == node)


def numbers(folder: Path, count: int) -> str:
    path = folder / "numbers"
    path.write_text("".join(f"{number}\n" for number in range(count)))
    return str(path)


def test_a_drained_node_is_empty_and_gets_its_share_again_and_nothing_is_lost(
    run: Run, tmp_path: Path
) -> None:
    run("topic", "create", "two", "--partitions", "6", "--replication-factor", "2")
    run("topic", "create", "one", "--partitions", "3", "--replication-factor", "1")
    for topic in ("one", "two"):
        assert run("produce", topic, "--file", numbers(tmp_path, 500))[0] == 0
    before = placed(run, "two")
    code, out, _ = run("node", "drain", "3", "--dry-run")
    assert (code, placed(run, "two")) == (0, before)
    assert "TOPIC" in out and "to copy" in out
    code, _, why = run("node", "drain", "3")
    assert code == 1 and "--yes" in why
    code, out, why = run("node", "drain", "3", "--yes", "--json")
    assert code == 0, why
    done = json.loads(out)
    assert done["done"] and all(3 not in each["to"] for each in done["moves"])
    assert replicas_of(run, 3) == 0
    assert run("node", "drain", "3", "--yes")[1].startswith("node 3 has nothing to move")
    assert run("node", "add", "3", "--yes")[0] == 0
    assert replicas_of(run, 3) == 5
    assert "nothing moves" in run("node", "rebalance", "--yes")[1]
    for topic in ("one", "two"):
        read = run("consume", topic)[1].split()
        assert sorted(map(int, read)) == list(range(500))
        run("topic", "delete", topic, "--yes")


def test_a_node_is_not_drained_where_too_few_would_be_left(run: Run) -> None:
    run("topic", "create", "three", "--replication-factor", "3", "--partitions", "1")
    code, _, why = run("node", "drain", "2", "--yes")
    assert code == 1
    assert "has 3 replicas, and without node 2 only 2 nodes are alive: add a node" in why
    said = run("node", "drain", "9")[2]
    assert said.startswith("fencepost: there is no node 9; there are 1, 2, 3. One that is new")
    assert "still has" in run("node", "forget", "2")[2]
    run("topic", "delete", "three", "--yes")


def test_an_offline_partition_says_who_must_return_and_is_given_up_only_by_name(
    run: Run, cluster: LocalCluster
) -> None:
    assert "Every partition has a leader" in run("partition", "list", "--offline")[1]
    setting = ("--config", "min.insync.replicas=1")
    run("topic", "create", "off", "--partitions", "4", "--replication-factor", "2", *setting)
    partition = next(n for n, each in enumerate(placed(run, "off")) if 3 in each)
    (other,) = (each for each in placed(run, "off")[partition] if each != 3)
    refused = run("partition", "recover", "off", str(partition))
    assert refused[0] == 1 and "there is nothing to recover" in refused[2]
    cluster.kill(3)  # the other one goes on alone
    shown = wait_for(run, partition, lambda row: row["isr"] == [other] and row["leader"] == other)
    assert shown["eligible"] == []
    cluster.kill(other)
    cluster.start_again(3)
    shown = wait_for(run, partition, lambda row: row["leader"] is None)
    assert f"Only node {other} has all that was acknowledged" in shown["why_offline"]
    for words in (("partition", "list", "--offline"), ("topic", "describe", "off")):
        assert f"off-{partition} is offline. Only node {other} has" in run(*words)[1]
    code, _, why = run("partition", "recover", "off", str(partition))
    assert code == 1 and "would be gone for good" in why and "--accept-data-loss" in why
    code, out, _ = run("partition", "recover", "off", str(partition), "--accept-data-loss")
    assert (code, out) == (0, f"off-{partition} is led by node 3\n")
    cluster.start_again(other)
    wait_for(run, partition, lambda row: sorted(row["isr"]) == sorted(row["replicas"]))
    run("topic", "delete", "off", "--yes")


def test_a_throttled_move_that_is_left_goes_on_until_it_is_cancelled(
    run: Run, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Ctrl-C ends the command, not the move; the throttle goes with the move."""
    run("topic", "create", "slow", "--partitions", "3", "--replication-factor", "2")
    words = tmp_path / "words"
    # With keys: without, all may go to one partition, and the others are moved before anybody looks.
    words.write_text("".join(f"{number}:{number:0500}\n" for number in range(700)))
    # A first batch may always go, and a partition of a single one has arrived with it.
    for _ in range(3):
        assert run("produce", "slow", "--file", str(words), "--key-separator", ":")[0] == 0
    # Somebody else's, who would be surprised if it went with our moves.
    for number in range(20):
        other = f"theirs-{number}"
        run("topic", "create", other, "--partitions", "1", "--replication-factor", "1")
        if 3 not in placed(run, other)[0]:
            break
    theirs = [f"{side}.replication.throttled.replicas=0:1" for side in ("leader", "follower")]
    assert run("config", "set", "--topic", other, *theirs)[0] == 0
    before = placed(run, "slow")
    drain = subprocess.Popen(
        [*fencepost_command(), "node", "drain", "3", "--yes", "--throttle", "0.001"],
        env={**os.environ, "FENCEPOST_BOOTSTRAP": cluster.bootstrap},
        stdout=subprocess.PIPE,
        text=True,
    )
    # Of this topic, not of the empty ones, which have arrived before anybody stops the command.
    while not moving(run, "slow"):
        assert drain.poll() is None
    drain.send_signal(signal.SIGINT)
    said, _ = drain.communicate(timeout=30)
    assert drain.returncode == 130, said
    assert "go on moving without this command" in said and "cancel-moves" in said
    refused = run("node", "rebalance", "--yes")
    assert refused[0] == 1 and "on the move already" in refused[2]
    assert run("node", "cancel-moves")[0] == 0
    assert "on the move" not in run("node", "list")[1]
    # Small partitions may have arrived; whatever had not is where it was.
    assert [each for each in placed(run, "slow") if 3 in each], before
    shown = json.loads(run("config", "get", "--topic", "slow", "--json")[1])
    assert not any("throttled" in each["setting"] for each in shown)
    shown = json.loads(run("config", "get", "--topic", other, "--json")[1])
    assert sum("throttled" in each["setting"] for each in shown) == 2
    assert rates(run), "what is throttled has a rate"
    assert run("node", "cancel-moves")[1] == "Nothing moves.\n"
    run("config", "unset", "--topic", other, *(each.partition("=")[0] for each in theirs))
    assert run("node", "drain", "3", "--yes", "--throttle", "100")[0] == 0
    assert not rates(run), "nothing is throttled any more"
    assert run("node", "add", "3", "--yes")[0] == 0
    run("topic", "delete", other, "--yes")
    run("topic", "delete", "slow", "--yes")


def rates(run: Run) -> set[str]:
    """The throttled rates that are set for all nodes."""
    shown = json.loads(run("config", "get", "--broker", "1", "--json")[1])
    return {each["value"] for each in shown if each["setting"].endswith("throttled.rate")}


def wait_for(run: Run, partition: int, happened: Callable[[dict[str, object]], bool]):
    """Look until it has; the test's own time limit ends it."""
    while True:
        code, out, _ = run("partition", "list", "off", "--json")
        if code == 0:
            shown = json.loads(out)[partition]
            if happened(shown):
                return shown
