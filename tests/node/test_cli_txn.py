"""`fencepost txn` against one real node: what it says of transactions, and how it ends those that hang."""

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from cli_said import runs
from confluent_kafka import KafkaException, Producer
from fencepost.chaos.harness.processes import Node
from fencepost.cluster.wire.api import ApiKey, decode_response
from raw_door import answer, framed
from support.fencepost_process import fencepost
from txn_talk import Producer as LostProducer
from txn_talk import records

pytestmark = pytest.mark.slow
_number = count(1)
Run = Callable[..., tuple[int, str, str]]
FEW_PARTITIONS = {
    "FENCEPOST_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "3",
    # So that what a test leaves open can be written as hanging.
    "FENCEPOST_TRANSACTION_PARTITION_VERIFICATION_ENABLE": "false",
    "FENCEPOST_TRANSACTION_CHECK_INTERVAL_MS": "20",
    "FENCEPOST_TRANSACTION_CHECK_MAX": "1",
}


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with fencepost(environment=FEW_PARTITIONS) as running:
        yield running


@pytest.fixture
def run(node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", node.bootstrap)

    command = runs(capsys)

    def run(*words: str) -> tuple[int, str, str]:
        said = command(*words)
        assert "Traceback" not in said.err
        return said.code, said.out, said.err

    return run


@pytest.fixture
def topic(run: Run) -> str:
    name = f"topic-{next(_number)}"
    assert run("topic", "create", name, "--partitions", "2")[0] == 0
    return name


def begun(node: Node, name: str, topic: str, *partitions: int, **settings: Any) -> Any:
    """A producer in the middle of a transaction."""
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "transactional.id": name,
            "log_level": 0,
            **settings,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    return producer


def rows(run: Run, *words: str) -> list[dict[str, Any]]:
    code, out, err = run("txn", "list", "--json", *words)
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


def state(run: Run, name: str) -> str:
    return next(str(row["state"]) for row in rows(run) if row["transactional_id"] == name)


def test_a_list_shows_what_is_open_and_its_filters_leave_out_the_rest(
    run: Run, node: Node, topic: str
) -> None:
    open_one = begun(node, "list-a", topic, 0, 1)
    ended = begun(node, "list-b", topic, 0)
    ended.commit_transaction(30)
    wait_for(lambda: state(run, "list-b") == "CompleteCommit")
    found = {row["transactional_id"]: row for row in rows(run, "--pattern", "list-.*")}
    assert sorted(found) == ["list-a", "list-b"]
    assert (found["list-a"]["state"], found["list-a"]["partitions"]) == ("Ongoing", 2)
    assert found["list-a"]["age_ms"] >= 0
    assert found["list-b"]["age_ms"] is None
    ongoing = rows(run, "--state", "Ongoing", "--pattern", "list-.*")
    assert [row["transactional_id"] for row in ongoing] == ["list-a"]
    assert rows(run, "--running-for", "1h") == []
    assert run("txn", "list", "--running-for", "1h")[1] == "No transactions match.\n"
    open_one.abort_transaction(30)
    _, _, why = run("txn", "list", "--state", "Sleeping")
    assert why.startswith("fencepost: there is no state Sleeping; there are Empty, Ongoing")
    assert "is no regular expression" in run("txn", "list", "--pattern", "(")[2]
    code, _, why = run("txn", "list", "--running-for", "soon")
    assert code == 2 and "'soon' is no time: say a number with a unit" in why


def test_a_description_says_why_readers_wait_and_for_how_long(
    run: Run, node: Node, topic: str
) -> None:
    first = begun(node, "describe-a", topic, 0)
    second = begun(node, "describe-b", topic, 0, 1)
    code, out, _ = run("txn", "describe", "describe-b")
    assert code == 0
    assert out.startswith("describe-b  Ongoing, open for ")
    # Partition 0 waits for the transaction that began there first, partition 1 for this one.
    shared = next(line for line in out.splitlines() if line.startswith(f"{topic}-0 "))
    assert "Its last stable offset stands at 0 for" in shared
    assert "behind the high watermark: the transaction of describe-a, which began at 0," in shared
    alone = next(line for line in out.splitlines() if line.startswith(f"{topic}-1 "))
    assert "the transaction of describe-b, which began at 0, is open; its producer has" in alone
    shown = json.loads(run("txn", "describe", "describe-b", "--json")[1])
    assert shown["timeout_ms"] == 60_000
    assert [row["last_stable_offset"] for row in shown["partitions"]] == [0, 0]
    first.abort_transaction(30)
    second.commit_transaction(30)
    wait_for(lambda: state(run, "describe-b") == "CompleteCommit")
    assert "No partition waits for it." in run("txn", "describe", "describe-b")[1]
    assert run("txn", "describe", "nobody")[2] == (
        "fencepost: there is no transactional id nobody. `fencepost txn list` shows those there are.\n"
    )


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def test_an_abort_by_name_ends_it_everywhere_and_fences_its_producer(
    run: Run, node: Node, topic: str
) -> None:
    producer = begun(node, "abort-a", topic, 0, 1)
    code, _, why = run("txn", "abort", "abort-a")
    assert code == 1 and "open in 2 partitions, would be aborted" in why and "say --yes" in why
    assert state(run, "abort-a") == "Ongoing"
    assert run("txn", "abort", "abort-a", "--yes")[:2] == (
        0,
        "aborted the transaction of abort-a\n",
    )
    assert state(run, "abort-a") != "Ongoing"
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    assert "has nothing open" in run("txn", "abort", "abort-a", "--yes")[2]
    assert "name the transaction" in run("txn", "abort")[2]


def test_a_transaction_that_its_coordinator_knows_is_not_taken_for_hanging(
    run: Run, node: Node, topic: str
) -> None:
    producer = begun(node, "busy", topic, 1)
    words = ("--max-transaction-timeout", "1ms", "--topic", topic)
    assert run("txn", "find-hanging", *words)[1] == "No transaction hangs in 2 partitions.\n"
    place = ("--topic", topic, "--partition", "1", "--start-offset", "0")
    code, _, why = run("txn", "abort", *place, "--yes")
    assert code == 1
    assert "it does not hang: it is the transaction of busy (Ongoing)" in why
    assert "no transaction of" in run("txn", "abort", *place[:-1], "7", "--yes")[2]
    producer.commit_transaction(30)


def write_alone(node: Node, topic: str) -> None:
    """A transactional record that no coordinator has heard of, as brokers took it before KIP-890. Of long ago."""
    data = records(b"lost", LostProducer("nobody", 4711, 3))
    request = framed(
        ApiKey.produce,
        11,
        transactional_id="nobody",
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": topic, "partition_data": [{"index": 1, "records": data}]}],
    )
    with socket.create_connection(("127.0.0.1", node.port), 10) as plain:
        plain.sendall(request)
        _, reply = decode_response(ApiKey.produce, 11, answer(plain))
    assert reply.responses[0].partition_responses[0].error_code == 0, reply


def test_a_transaction_that_nobody_will_end_is_found_and_ended_and_readers_go_on(
    run: Run, node: Node, topic: str
) -> None:
    """kcl#10, KAFKA-12671: an offset that stood still for ever, and no tool to see why."""
    write_alone(node, topic)
    found = json.loads(run("txn", "find-hanging", "--topic", topic, "--json")[1])
    (row,) = found
    assert (row["topic"], row["partition"], row["producer_id"]) == (topic, 1, 4711)
    assert (row["epoch"], row["coordinator_epoch"], row["start_offset"]) == (3, -1, 0)
    assert "No coordinator will end these." in run("txn", "find-hanging", "--topic", topic)[1]
    behind = begun(node, "behind", topic, 1)
    why = run("txn", "describe", "behind")[1]
    command = f"txn abort --topic {topic} --partition 1 --start-offset 0"
    assert "a transaction of producer 4711 (epoch 3) that began at 0" in why
    assert f"`fencepost {command}` ends it" in why
    code, _, why = run(*command.split())
    assert code == 1 and "nobody who reads committed records ever sees it" in why
    assert run(*command.split(), "--yes")[:2] == (
        0,
        f"aborted the transaction at {topic}-1, offset 0\n",
    )
    assert "No transaction hangs" in run("txn", "find-hanging", "--topic", topic)[1]
    why = run("txn", "describe", "behind")[1]
    assert "the transaction of behind, which began at 1, is open" in why
    behind.commit_transaction(30)


def post(node: Node, path: str, **fields: Any) -> Any:
    url = f"http://127.0.0.1:{node.port + 1_000}{path}"
    request = urllib.request.Request(url, data=json.dumps(fields).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read())


def parked(run: Run, node: Node, name: str, topic: str) -> str:
    """A half message that its producer's checker knew nothing of: which one."""
    begun(node, name, topic, 0)
    told = json.loads(run("txn", "describe", name, "--json")[1])
    who = {each: told[each] for each in ("transactional_id", "producer_id", "producer_epoch")}
    half_id = str(post(node, "/v1/checks/prepare", **who, half_id=f"half of {name}")["half_id"])
    assert name in run("txn", "parked", "--all")[1]
    member = {"group": name.split("::", maxsplit=1)[0], "member": "m"}
    delivered: list[Any] = []

    def is_parked() -> bool:
        nonlocal delivered
        polled = post(
            node, "/v1/checks/poll", **member, wait_ms_max=100, checks_max=1, delivered=delivered
        )
        delivered = polled["checks"]
        return name in run("txn", "parked")[1]

    wait_for(is_parked)
    return half_id


def test_a_parked_half_message_is_shown_and_checked_again_or_decided_by_a_person(
    run: Run, node: Node, topic: str
) -> None:
    half_id = parked(run, node, "shop::a", topic)
    (row,) = json.loads(run("txn", "parked", "--json")[1])
    assert (row["transactional_id"], row["half_id"], row["state"]) == ("shop::a", half_id, "parked")
    assert "Readers of their partitions wait behind these." in run("txn", "parked")[1]
    assert (
        "waits for its owner to commit or abort it; it has no timeout"
        in run("txn", "describe", "shop::a")[1]
    )
    assert "are asked about" in run("txn", "release", "shop::a")[1]
    code, out, why = run("txn", "release", "shop::a", "--outcome", "commit")
    assert (code, out) == (0, f"shop::a: {half_id} is committed\n"), why
    wait_for(lambda: state(run, "shop::a") == "CompleteCommit")
    code, _, why = run("txn", "release", "shop::a", "--outcome", "rollback")
    assert code == 1 and "It had been decided before" in why
    code, _, why = run("txn", "release", "shop::a")
    assert code == 1 and why.startswith("fencepost: ")


def test_what_is_parked_is_asked_of_the_admin_door(run: Run, node: Node) -> None:
    assert run("txn", "parked")[:2] == (0, "Nothing is parked.\n")
    assert json.loads(run("txn", "parked", "--all", "--json")[1]) == []
    code, _, why = run("txn", "release", "nobody")
    assert code == 1 and why.startswith("fencepost: ")
    _, _, why = run("txn", "parked", "--admin", "127.0.0.1:1")
    assert why.startswith("fencepost: no admin door answers at http://127.0.0.1:1 (")
    assert "say HOST:PORT" in run("txn", "parked", "--admin", "://")[2]
