"""`kafka-transactions.sh`, Kafka's own tool for transactions, as an operator types it."""

import re
import subprocess
import time
from collections.abc import Callable

import pytest
from brokers import WAIT_S, calm
from confluent_kafka import KafkaError, KafkaException
from kafka_tools import run_tool
from librdkafka import create, error_code
from librdkafka_transactions import COMMITTED, ends_of, read_settled, transactional, write

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka"), pytest.mark.timeout(400)]

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def rows_of(printed: str) -> list[dict[str, str]]:
    """What a table of the tool says, a line a row."""
    lines = [line for line in printed.splitlines() if line.strip()]
    start = next(i for i, line in enumerate(lines) if line.split()[0] in STARTS)
    names = lines[start].split()
    return [dict(zip(names, line.split(), strict=False)) for line in lines[start + 1 :]]


STARTS = ("CoordinatorId", "TransactionalId", "ProducerId", "Topic")


@pytest.fixture
def asked(bootstrap):
    """The tool's answer. Its `--bootstrap-server` stands before the command."""

    def run(*command: str, code: int = 0) -> str:
        return run_tool(TRANSACTIONS, "--bootstrap-server", bootstrap, *command, code=code)

    return run


@pytest.fixture
def opened(bootstrap, topic, fresh):
    """The name of an open transaction with three records, and its producer."""
    create(bootstrap, topic)
    name = fresh("writer")
    producer = transactional(bootstrap, name, transaction_timeout_ms=45_000)
    producer.begin_transaction()
    write(producer, topic, [b"1", b"2", b"3"])
    assert producer.flush(WAIT_S) == 0
    return name, producer


@calm
def test_an_open_transaction_is_listed_described_and_seen_on_its_partition(
    asked, opened, topic
) -> None:
    name, producer = opened
    [listed] = [row for row in rows_of(asked("list")) if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    long_ones = asked("list", "--duration-filter", "600000")
    assert name not in long_ones
    pattern = asked("list", "--transactional-id-pattern", re.escape(name))
    assert [row["TransactionalId"] for row in rows_of(pattern)] == [name]
    [described] = rows_of(asked("describe", "--transactional-id", name))
    assert described["CoordinatorId"] == listed["Coordinator"]
    assert described["ProducerId"] == listed["ProducerId"]
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "45000"
    assert described["TopicPartitions"] == f"{topic}-0"
    assert 0 <= int(described["TransactionDurationMs"]) < 45_000
    where = ("--topic", topic, "--partition", "0")
    [state] = rows_of(asked("describe-producers", *where))
    assert state["ProducerId"] == listed["ProducerId"]
    assert state["ProducerEpoch"] == described["ProducerEpoch"]
    assert (state["LastSequence"], state["CurrentTransactionStartOffset"]) == ("2", "0")
    producer.commit_transaction(WAIT_S)
    [state] = rows_of(asked("describe-producers", *where))
    assert state["CurrentTransactionStartOffset"] == "None"
    [described] = rows_of(asked("describe", "--transactional-id", name))
    assert described["TransactionState"] == "CompleteCommit"
    assert "TopicPartitions" not in described, "nothing is left to be marked"


@calm
def test_a_transaction_that_its_coordinator_knows_does_not_hang(asked, opened, topic) -> None:
    _, producer = opened
    found = asked("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    assert rows_of(found) == []
    producer.abort_transaction(WAIT_S)


@calm
def test_an_operator_aborts_what_a_partition_has_open(bootstrap, asked, opened, topic) -> None:
    _, producer = opened
    where = ("--topic", topic, "--partition", "0")
    nothing = asked("abort", *where, "--start-offset", "1", code=1)
    assert "Could not find any open transactions starting at offset 1" in nothing
    assert ends_of(bootstrap, topic, 1, COMMITTED) == {0: 0}
    asked("abort", *where, "--start-offset", "0")
    assert read_settled(bootstrap, topic) == []
    assert ends_of(bootstrap, topic, 1, COMMITTED) == {0: 4}
    [state] = rows_of(asked("describe-producers", *where))
    assert state["CurrentTransactionStartOffset"] == "None"
    producer.abort_transaction(WAIT_S)


@calm
def test_an_operator_ends_the_transaction_of_an_id(bootstrap, asked, opened, topic) -> None:
    name, producer = opened
    asked("forceTerminateTransaction", "--transactionalId", name)
    assert read_settled(bootstrap, topic) == []
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(WAIT_S)
    assert error_code(caught) == KafkaError._FENCED


@calm
def test_an_id_that_nobody_has_is_not_found(asked, fresh) -> None:
    printed = asked("describe", "--transactional-id", fresh("never"), code=1)
    assert "Failed to describe transaction state of transactional-id" in printed


@pytest.fixture
def told(asked):
    """Answered at last, in the way that is wanted: while leaders die a command may find nobody to ask, and ends."""

    def until_told(*command: str, wanted: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + 4 * WAIT_S
        while True:
            try:
                said = asked(*command)
            except (AssertionError, subprocess.TimeoutExpired) as ended:
                said = str(ended)
            if wanted(said):
                return
            assert time.monotonic() < deadline, f"{' '.join(command)}: {said}"

    return until_told


@pytest.mark.long
def test_an_operator_sees_and_ends_what_is_open_also_while_leaders_die(
    bootstrap, told, topic, fresh
) -> None:
    create(bootstrap, topic)
    name = fresh("writer")
    producer = transactional(bootstrap, name, transaction_timeout_ms=600_000)
    producer.begin_transaction()
    write(producer, topic, [b"1", b"2", b"3"])
    assert producer.flush(WAIT_S) == 0
    told("list", wanted=lambda said: re.search(rf"{re.escape(name)}\s.*Ongoing", said) is not None)
    one = ("--transactional-id", name)
    told("describe", *one, wanted=lambda said: "Ongoing" in said and f"{topic}-0" in said)
    at = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    gone = "Could not find any open transactions"  # when an answer was lost, and it is asked again
    told("abort", *at, wanted=lambda said: " ended with " not in said or gone in said)
    assert read_settled(bootstrap, topic) == []
    told(
        "forceTerminateTransaction",
        "--transactionalId",
        name,
        wanted=lambda said: " ended with " not in said,
    )
    told("describe", *one, wanted=lambda said: "Empty" in said or "CompleteAbort" in said)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(WAIT_S)
    assert error_code(caught) == KafkaError._FENCED
    assert read_settled(bootstrap, topic) == []
