"""`fencepost txn` against three real nodes, one of which is dead: what it can tell, and what it must not guess."""

import json
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.chaos.harness.local_cluster import LocalCluster
from fencepost.clients.transactional.kept_topics import make_topic
from fencepost.node.main import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
Run = Callable[..., tuple[int, str, str]]
# The transaction log has one copy, so that it can be out of reach while the cluster goes on.
SETTINGS = [
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
]


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


def wait_for(done: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


def test_a_partition_without_a_leader_is_why_its_transaction_is_not_over(
    run: Run, cluster: LocalCluster
) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay", "log_level": 0}
    )
    producer.init_transactions(30)
    coordinator = json.loads(run("txn", "describe", "pay", "--json")[1])["coordinator"]
    alone = next(each for each in (1, 2, 3) if each != coordinator)
    few = {"min.insync.replicas": "1"}
    topic = NewTopic("alone", 1, replica_assignment=[[alone]], config=few)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert make_topic(admin, topic)
    producer.begin_transaction()
    producer.produce("alone", b"x", partition=0)
    assert producer.flush(30) == 0
    cluster.kill(alone)
    wait_for(lambda: "alone-0" in run("partition", "list", "alone", "--offline")[1])
    producer.commit_transaction(30)  # it is decided; not every partition shows it yet
    wait_for(lambda: described(run)["state"] == "PrepareCommit")
    (row,) = described(run)["partitions"]
    assert row["why"].startswith("It has no leader, so no marker can be written. Only node")
    code, out, why = run("txn", "find-hanging", "--max-transaction-timeout", "1ms")
    assert code == 1 and "No transaction hangs in" in out
    assert "alone-0 could not be looked at. Only node" in why
    cluster.start_again(alone)
    wait_for(lambda: described(run)["state"] == "CompleteCommit")


def described(run: Run) -> dict[str, object]:
    found: dict[str, object] = json.loads(run("txn", "describe", "pay", "--json")[1])
    return found


def test_what_no_node_leads_is_not_taken_for_what_nobody_knows(
    run: Run, cluster: LocalCluster
) -> None:
    """A transaction whose coordinator is dead does not hang: its decision is in a log that nobody can read now."""
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    admin = AdminClient(settings)
    assert make_topic(admin, NewTopic("busy", 1, 3))
    producer = Producer({**settings, "transactional.id": "pay"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("busy", b"x", partition=0)
    assert producer.flush(30) == 0
    dead = described(run)["coordinator"]
    assert isinstance(dead, int)
    cluster.kill(dead)
    wait_for(lambda: "no leader" in run("txn", "list")[2])
    code, out, why = run("txn", "list")
    assert (code, out) == (1, "Those that could be asked know of none.\n")
    assert "__transaction_state-0 has no leader: its transactions are missing here" in why
    words = ("find-hanging", "--topic", "busy", "--max-transaction-timeout", "1ms")
    code, _, why = run("txn", *words)
    assert code == 1 and "it can't be told which transactions hang" in why
    place = ("--topic", "busy", "--partition", "0", "--start-offset", "0")
    code, _, why = run("txn", "abort", *place, "--yes")
    assert code == 1 and "it can't be told whether it hangs" in why
    cluster.start_again(dead)
    wait_for(lambda: run("txn", "list")[0] == 0)
    producer.abort_transaction(30)
