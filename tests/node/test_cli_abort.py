"""`txn abort` when a node stops between two questions: whether it may have happened is said."""

from types import SimpleNamespace as Answer
from typing import Any

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import txn_hanging
from fencepost.node.cli.txn_sentences import NO_TIMEOUT_MS, Open, Transaction
from fencepost.node.cli.wire import Wire
from fencepost.node.main import main

ABORT = ("txn", "abort", "--yes", "--bootstrap", "127.0.0.1:9001")
LOST = Trouble("the connection was lost")
DEAD = Trouble("can't connect to 127.0.0.1:9001", Outcome.REFUSED)
NONE, TOO_LONG = ErrorCode.none, ErrorCode.invalid_transaction_timeout
AGAIN = Answer(error_code=ErrorCode.concurrent_transactions)


class Cluster(ToldCluster):
    """Answers to orders are taken from `answers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(Wire, "sleep", lambda *_: None)
        monkeypatch.setattr(txn_hanging, "describe", lambda *_: transaction(self.timeout_ms))
        monkeypatch.setattr(txn_hanging, "_hanging_at", lambda *_: hanging())
        self.answers: list[Any] = []
        self.timeout_ms = 60_000  # of the transaction
        self.timeout_ms_max = 900_000  # transaction.max.timeout.ms
        self.timeouts: list[int] = []  # that were sent

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        match key:
            case ApiKey.find_coordinator:
                row = Answer(error_code=ErrorCode.none, node_id=1, host="127.0.0.1", port=9001)
                return Answer(coordinators=[row])
            case ApiKey.init_producer_id if not self.answers:
                self.timeouts.append(fields["transaction_timeout"])
                is_short = 0 < self.timeouts[-1] <= self.timeout_ms_max
                return Answer(error_code=NONE if is_short else TOO_LONG)
            case ApiKey.init_producer_id | ApiKey.write_txn_markers:
                answer = self.answers.pop(0)
                if isinstance(answer, Trouble):
                    raise answer
                return answer
        return super()._ask_at(address, key, fields)


def transaction(timeout_ms: int) -> Transaction:
    return Transaction(
        transactional_id="pay-7",
        state="Ongoing",
        producer_id=1,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        started_ms=1,
        partitions=(),
        coordinator=BrokerId(1),
    )


def hanging() -> Open:
    return Open(
        place=TopicPartition("orders", 0),
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        first_offset=5,
        last_write_ms=0,
    )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            [LOST],
            "(the connection was lost). It may have been aborted: look with `fencepost txn describe pay-7`.",
        ),
        ([DEAD], "Nothing was aborted; try again."),
        ([AGAIN, DEAD], "It may have been aborted: look with `fencepost txn describe pay-7`."),
    ],
)
def test_a_coordinator_that_stops_may_have_aborted_it(
    answers: list[Any], said: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers = answers
    assert main([*ABORT, "pay-7"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("fencepost: node 1, which coordinates pay-7, ")
    assert said in told.err


@pytest.mark.parametrize(
    ("timeout_ms", "longest_ms", "sent"),
    [
        (20_000, 30_000, [20_000]),
        (60_000, 30_000, [60_000, 1]),  # it was allowed when it began
        (NO_TIMEOUT_MS, 30_000, [1]),
    ],
)
def test_a_cluster_that_allows_no_minute_aborts_it_too(
    timeout_ms: int, longest_ms: int, sent: list[int], cluster: Cluster
) -> None:
    """A minute was asked for, whatever it had: INVALID_TRANSACTION_TIMEOUT."""
    cluster.timeout_ms, cluster.timeout_ms_max = timeout_ms, longest_ms
    assert main([*ABORT, "pay-7"]) == 0
    assert cluster.timeouts == sent


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (LOST, "It may have been aborted: look with `fencepost txn find-hanging --topic orders`."),
        (DEAD, "Nothing was aborted; try again."),
    ],
)
def test_a_leader_that_stops_may_have_written_the_marker(
    answer: Trouble, said: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answers = [answer]
    place = ("--topic", "orders", "--partition", "0", "--start-offset", "5")
    assert main([*ABORT, *place]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("fencepost: node 1, which leads orders-0, ")
    assert said in told.err
