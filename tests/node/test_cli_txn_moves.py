"""Transactions while their coordinators die and move between two questions: none is taken for one that nobody knows."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace as Answer
from typing import Any
from uuid import UUID

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import txn_coordinators, txn_reading
from fencepost.node.cli.wire import Wire
from fencepost.node.main import main
from fencepost.txn.runtime.ownership import partition_for

BOOTSTRAP = ("--bootstrap", "127.0.0.1:9002,127.0.0.1:9001")
PLACE = ("--topic", "orders", "--partition", "0", "--start-offset", "5")
ABORT = ("txn", "abort", *PLACE, "--yes", *BOOTSTRAP)
PARTS = 4
NAME = "pay-7"
PART = partition_for(NAME, PARTS)


class Moving(ToldCluster):
    """The log of transactions has four parts; pay-7 of producer 1 is open in orders-0, from 5 on. `then` is called behind
    each answer, with what was asked of which node."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(Wire, "sleep", lambda *_: None)
        self.part_of = {0: (1, 7), 1: (2, 7), 2: (3, 7), 3: (2, 7)} | {PART: (3, 7)}
        self.unread: set[int] = set()  # parts that whoever leads them has not
        self.names = {NAME: 1}
        self.then: Callable[[ApiKey, int], None] = lambda *_: None
        self.markers: list[Any] = []
        self.opens = ErrorCode.none  # what the leader of orders-0 says of what is open there

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        node = address[1] - 9000
        match key:
            case ApiKey.describe_topic_partitions:
                self.internal = [self._log()]
        if address[1] in self.down:
            raise Trouble(f"can't connect to 127.0.0.1:{address[1]}", Outcome.REFUSED)
        told = self._told(node, key, fields)
        answer = super()._ask_at(address, key, fields) if told is None else told
        self.then(key, node)
        return answer

    def _log(self) -> Any:
        rows = [
            Answer(
                partition_index=each,
                leader_id=leader,
                leader_epoch=leader_epoch,
                replica_nodes=[1, 2, 3],
                isr_nodes=[1, 2, 3],
                eligible_leader_replicas=[],
                offline_replicas=[],
            )
            for each, (leader, leader_epoch) in self.part_of.items()
        ]
        return Answer(
            name=TRANSACTION_STATE_TOPIC,
            topic_id=UUID(int=2),
            error_code=ErrorCode.none,
            partitions=rows,
        )

    def _told(self, node: int, key: ApiKey, fields: dict[str, Any]) -> Any:
        match key:
            case ApiKey.find_coordinator:
                return Answer(coordinators=list(map(self._coordinator, fields["coordinator_keys"])))
            case ApiKey.list_transactions:
                rows = [
                    Answer(transactional_id=name, producer_id=producer_id)
                    for name, producer_id in self.names.items()
                    if self._speaks(node, name)
                ]
                return Answer(
                    error_code=ErrorCode.none, unknown_state_filters=(), transaction_states=rows
                )
            case ApiKey.describe_transactions:
                rows = [self._described(node, each) for each in fields["transactional_ids"]]
                return Answer(transaction_states=rows)
            case ApiKey.describe_producers:
                return Answer(topics=[Answer(name="orders", partitions=[self._open()])])
            case ApiKey.list_offsets:
                end = 5 if fields["isolation_level"] else 9
                row = Answer(partition_index=0, offset=end, error_code=ErrorCode.none)
                return Answer(topics=[Answer(name="orders", partitions=[row])])
            case ApiKey.write_txn_markers:
                self.markers += fields["markers"]
                row = Answer(error_code=ErrorCode.none)
                return Answer(markers=[Answer(topics=[Answer(partitions=[row])])])
        return None

    def _coordinator(self, name: str) -> Any:
        node = self.part_of[partition_for(name, PARTS)][0]
        return Answer(error_code=ErrorCode.none, node_id=node, host="127.0.0.1", port=9000 + node)

    def _speaks(self, node: int, name: str) -> bool:
        part = partition_for(name, PARTS)
        return self.part_of[part][0] == node and part not in self.unread

    def _described(self, node: int, name: str) -> Any:
        error = ErrorCode.transactional_id_not_found
        if not self._speaks(node, name):
            error = ErrorCode.not_coordinator
        elif name in self.names:
            error = ErrorCode.none
        return Answer(
            error_code=error,
            transactional_id=name,
            transaction_state="Ongoing",
            transaction_timeout=timedelta(minutes=1),
            transaction_start_time=1,
            producer_id=self.names.get(name, 0),
            producer_epoch=0,
            topics=[Answer(topic="orders", partitions=(0,))],
        )

    def _open(self) -> Any:
        row = Answer(
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
            current_txn_start_offset=5,
            last_timestamp=1,
        )
        is_told = self.opens is ErrorCode.none
        return Answer(
            partition_index=0, error_code=self.opens, active_producers=[row] if is_told else []
        )

    def dies_behind(self, key: ApiKey, node: int) -> None:
        """The node stops when it has answered that."""

        def then(asked: ApiKey, of: int) -> None:
            if (asked, of) == (key, node):
                self.down.add(9000 + node)

        self.then = then

    def moves_behind(self, key: ApiKey, node: int, to: int) -> None:
        """Once that node has answered that, pay-7 is another one's."""

        def then(asked: ApiKey, of: int) -> None:
            if (asked, of) == (key, node):
                self.part_of[PART] = (to, 8)

        self.then = then


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Moving:
    return Moving(monkeypatch)


@pytest.fixture
def looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (txn_coordinators, txn_reading):
        monkeypatch.setattr(module, "AGAIN_S", 0.0)


def test_what_no_coordinator_knows_is_aborted(cluster: Moving) -> None:
    cluster.names.clear()
    assert main(ABORT) == 0
    assert len(cluster.markers) == 1


@pytest.mark.usefixtures("looks_once")
@pytest.mark.parametrize("key", [ApiKey.list_transactions, ApiKey.describe_transactions])
def test_a_transaction_whose_coordinator_dies_while_it_is_looked_for_is_not_torn(
    cluster: Moving, key: ApiKey, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its producer commits it at the next coordinator; one partition would not have it."""
    cluster.dies_behind(key, 3)
    assert main(ABORT) == 1
    assert "it can't be told whether it hangs: " in (said := capsys.readouterr().err)
    assert "127.0.0.1:9003" in said and cluster.markers == []
    words = ("txn", "find-hanging", "--topic", "orders", *BOOTSTRAP)
    cluster.down.clear()
    assert main(words) == 1
    assert "it can't be told which transactions hang: " in capsys.readouterr().err


@pytest.mark.usefixtures("looks_once")
def test_a_transaction_that_moves_while_it_is_looked_for_is_not_torn(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 1 was asked when node 3 had it, node 3 when node 1 has it: it was listed by nobody."""
    cluster.moves_behind(ApiKey.list_transactions, 1, to=1)
    assert main(ABORT) == 1
    assert "the transaction log has just moved to other nodes" in capsys.readouterr().err
    assert cluster.markers == []


def test_a_transaction_that_has_moved_is_looked_for_again(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.moves_behind(ApiKey.list_transactions, 1, to=1)
    assert main(ABORT) == 1
    assert "it does not hang: it is the transaction of pay-7" in capsys.readouterr().err
    assert cluster.markers == []


@pytest.mark.usefixtures("looks_once")
def test_what_its_coordinator_can_not_read_is_not_what_nobody_knows(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    """A coordinator lists its other parts, and says nothing of one whose log it can't read."""
    cluster.unread = {PART}
    assert main(ABORT) == 1
    said = capsys.readouterr().err
    assert f"(__transaction_state-{PART}: NOT_COORDINATOR)" in said
    assert cluster.markers == []


@pytest.mark.usefixtures("looks_once")
def test_a_list_tells_whom_nobody_describes(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.dies_behind(ApiKey.list_transactions, 3)
    assert main(["txn", "list", "--pattern", NAME, *BOOTSTRAP]) == 1
    said = capsys.readouterr()
    assert said.out == "Those that could be asked know of none.\n"
    assert "nobody describes pay-7, listed a moment ago (node 3: can't connect" in said.err


def test_a_list_looks_for_whoever_coordinates_it_now(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.moves_behind(ApiKey.describe_transactions, 1, to=1)
    assert main(["txn", "list", *BOOTSTRAP]) == 0
    assert NAME in capsys.readouterr().out


# --- the leader of the partition ------------------------------------------------------------------

HANGING = ("txn", "find-hanging", "--topic", "orders", *BOOTSTRAP)
UNSEEN = "orders-0 could not be looked at: node 1, which led it, does not tell what is open there."


@pytest.mark.parametrize("is_down", [False, True])
def test_a_partition_whose_leader_does_not_answer_is_not_one_without_a_hanging_transaction(
    cluster: Moving, capsys: pytest.CaptureFixture[str], *, is_down: bool
) -> None:
    cluster.opens = ErrorCode.none if is_down else ErrorCode.not_leader_or_follower
    cluster.down = {9001} if is_down else set()
    cluster.leads = 2
    assert main(HANGING) == 1
    said = capsys.readouterr()
    assert said.out == "No transaction hangs in 0 of 1 partition.\n"
    assert said.err.startswith(f"fencepost: {UNSEEN}")


def falls_silent(cluster: Moving) -> None:
    def then(asked: ApiKey, _: int) -> None:
        if asked is ApiKey.list_transactions:
            cluster.opens = ErrorCode.not_leader_or_follower

    cluster.names.clear()
    cluster.then = then


def test_what_nobody_told_the_second_time_has_not_ended(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    falls_silent(cluster)
    assert main(HANGING) == 1
    assert UNSEEN in capsys.readouterr().err
    cluster.opens = ErrorCode.none
    assert main(ABORT) == 1
    assert "the leader of orders-0 does not tell what is open there" in capsys.readouterr().err
    assert cluster.markers == []


def test_what_nobody_tells_is_not_described_as_over(
    cluster: Moving, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.opens = ErrorCode.not_leader_or_follower
    assert main(["txn", "describe", NAME, *BOOTSTRAP]) == 0
    said = capsys.readouterr().out
    assert "orders-0  Its leader, node 1, does not answer." in said


@pytest.mark.parametrize("count", [1, 3, 50])
def test_nodes_are_asked_about_an_id_of_each_part(count: int) -> None:
    asked = txn_coordinators._an_id_of_each(count)
    assert sorted(asked.values()) == list(range(count))
    assert all(partition_for(name, count) == part for name, part in asked.items())
