"""`partition recover`: the replica that was named leads afterwards, or the command ends with 1 and says who does."""

import json
from collections.abc import Callable
from types import SimpleNamespace as Answer
from typing import Any

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.main import main

RECOVER = ("partition", "recover", "orders", "0", "--bootstrap", "127.0.0.1:9001")
LOSING = (*RECOVER, "--accept-data-loss")


class LostCluster(ToldCluster):
    """Node 3 had everything of orders-0, and is dead. Orders and elections do what nodes do, but for what is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.down, self.leader, self.replicas = {9003}, NO_LEADER, [3, 1, 2]
        self.adding: list[int] = []
        self.refuses: str | None = None  # orders
        self.is_deaf = False  # takes orders, and nothing comes of them
        self.election = ErrorCode.none  # of the whole request
        self.then: Callable[[], None] = lambda: None  # just before the election
        self.sizes: dict[int, int] = {}  # of who tells its own

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        match key:
            case ApiKey.alter_partition_reassignments:
                self.asked.append((key, fields))
                return self._ordered(fields["topics"][0]["partitions"][0]["replicas"])
            case ApiKey.elect_leaders:
                self.asked.append((key, fields))
                return self._elected()
            case ApiKey.describe_log_dirs if address[1] - 9000 in self.sizes:
                each = Answer(partition_index=0, partition_size=self.sizes[address[1] - 9000])
                topics = [Answer(name="orders", partitions=[each])]
                return Answer(results=[Answer(error_code=ErrorCode.none, topics=topics)])
            case ApiKey.list_partition_reassignments if self.adding:
                move = Answer(partition_index=0, adding_replicas=self.adding, removing_replicas=())
                return Answer(topics=[Answer(name="orders", partitions=[move])])
        return super()._ask_at(address, key, fields)

    def _ordered(self, replicas: list[int]) -> Any:
        code = ErrorCode.none
        if self.refuses is not None:
            code = ErrorCode.invalid_replica_assignment
        elif not self.is_deaf:
            self.replicas = replicas
        each = Answer(partition_index=0, error_code=code, error_message=self.refuses)
        topics = [Answer(name="orders", partitions=[each])]
        return Answer(error_code=ErrorCode.none, responses=topics)

    def _elected(self) -> Any:
        self.then()
        if self.election is not ErrorCode.none:
            return Answer(error_code=self.election, replica_election_results=[])
        living = [each for each in self.replicas if 9000 + each not in self.down]
        settled = [each for each in living if each not in self.adding]
        self.leader = next(iter(settled or living), NO_LEADER)
        each = Answer(partition_id=0, error_code=ErrorCode.none, error_message=None)
        return Answer(
            error_code=ErrorCode.none,
            replica_election_results=[Answer(topic="orders", partition_result=[each])],
        )

    def _orders(self) -> Any:
        told = super()._orders()
        told.partitions[0].isr_nodes = [3]
        told.partitions[0].offline_replicas = []
        return told


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LostCluster:
    return LostCluster(monkeypatch)


def test_the_replica_that_is_named_is_made_the_first_and_leads(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LOSING, "--replica", "2"]) == 0
    assert capsys.readouterr().out == "orders-0 is led by node 2\n"
    assert cluster.replicas == [2, 3, 1]


@pytest.mark.parametrize("words", [RECOVER, LOSING])
def test_of_a_partition_that_moves_nobody_is_chosen_whom_the_cluster_would_not_elect(
    words: tuple[str, ...], cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its order was left as it was, another one led, and what only node 2 had was cut off."""
    cluster.replicas, cluster.adding = [3, 1, 2, 4], [4]
    assert main([*words, "--replica", "2"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "orders-0 is on the move" in said.err
    assert "node 1 would be elected, and not node 2" in said.err
    assert "`fencepost node cancel-moves`" in said.err
    assert not {ApiKey.elect_leaders, ApiKey.alter_partition_reassignments} & set(cluster.keys)


@pytest.mark.parametrize("who", [(), ("--replica", "1")])
def test_of_a_partition_that_moves_the_one_is_chosen_whom_the_cluster_elects(
    who: tuple[str, ...], cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.replicas, cluster.adding = [3, 1, 2, 4], [4]
    assert main([*LOSING, *who]) == 0
    assert capsys.readouterr().out == "orders-0 is led by node 1\n"
    assert ApiKey.alter_partition_reassignments not in cluster.keys


@pytest.mark.parametrize(
    ("sizes", "leads"),
    [
        ({1: 0, 2: 11_000}, 2),  # node 1 has a new disk
        ({1: 11_000, 2: 0}, 1),
        ({1: 7, 2: 7}, 1),  # the first of them
        ({2: 11_000}, 2),  # node 1 does not say
        ({}, 1),
    ],
)
def test_who_has_most_of_what_is_left_leads(
    sizes: dict[int, int], leads: int, cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three disks were lost: who had nothing stood first and led, and the only copy left was cut off."""
    cluster.sizes = sizes
    assert main(LOSING) == 0
    assert capsys.readouterr().out == f"orders-0 is led by node {leads}\n"
    assert cluster.replicas[0] == leads or leads == 1


def test_a_person_is_told_what_each_has_and_may_choose_otherwise(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.sizes = {2: 11_000}
    assert main(RECOVER) == 1
    said = capsys.readouterr().err
    assert "Of what is left: node 1 does not say, node 2 11 kB. What was acknowledged" in said
    assert "after node 2 was last in sync" in said
    assert main([*LOSING, "--replica", "1"]) == 0
    assert capsys.readouterr().out == "orders-0 is led by node 1\n"


def test_of_a_partition_that_moves_who_has_less_leads_only_by_name(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.replicas, cluster.adding, cluster.sizes = [3, 1, 2, 4], [4], {1: 0, 2: 9, 4: 99}
    assert main(LOSING) == 1
    said = capsys.readouterr().err
    assert (
        "node 1 would be elected, and not node 2. Of what is left: node 1 0 B, node 2 9 B" in said
    )
    assert "(--replica 1)" in said
    assert main([*LOSING, "--replica", "1"]) == 0
    assert capsys.readouterr().out == "orders-0 is led by node 1\n"


def test_nobody_is_elected_when_the_order_to_make_it_the_first_is_refused(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refuses = "node 2 is not what it was"
    assert main([*LOSING, "--replica", "2"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "node 2 can't be made the first replica: node 2 is not what it was" in said.err
    assert ApiKey.elect_leaders not in cluster.keys


def test_nobody_is_elected_when_the_order_came_to_nothing(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.is_deaf = True
    assert main([*LOSING, "--replica", "2"]) == 1
    assert "node 2 would not be elected any more" in capsys.readouterr().err
    assert ApiKey.elect_leaders not in cluster.keys


def test_another_one_that_leads_afterwards_is_no_success(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 2 died between the last look and the election."""
    cluster.then = lambda: cluster.down.add(9002)
    assert main([*LOSING, "--replica", "2", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)["error"]
    assert said.startswith("orders-0 is led by node 1, and not by node 2")


def test_a_partition_that_nobody_leads_afterwards_was_not_recovered(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.then = lambda: setattr(cluster, "replicas", [3])
    assert main([*LOSING, "--replica", "1"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "orders-0 has no leader still" in said.err


def test_an_election_that_is_refused_as_a_whole_was_none(
    cluster: LostCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.election = ErrorCode.request_timed_out
    assert main(LOSING) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "orders-0: the election was not answered as done (REQUEST_TIMED_OUT)" in said.err
