"""`node rebalance` where replicas are even and leaders are not: what FencepostLeadersUneven tells people to run."""

import json
from types import SimpleNamespace as Answer
from typing import Any

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli.leaders_back import Back, who_goes_back
from fencepost.node.cli.wire import Wire, read_image
from fencepost.node.main import main

REBALANCE = ("node", "rebalance", "--bootstrap", "127.0.0.1:9001")
BACK = {"topic": "orders", "partition": 0, "from": 2, "to": 1}


class Led(ToldCluster):
    """orders-0 is led by node 2, and node 1 is the first of its replicas."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.leader = 2
        self.isr = [1, 2, 3]
        self.why_not: str | None = None

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        if key is not ApiKey.elect_leaders:
            return super()._ask_at(address, key, fields)
        self.asked.append((key, fields))
        error = ErrorCode.none if self.why_not is None else ErrorCode.preferred_leader_not_available
        each = Answer(partition_id=0, error_code=error, error_message=self.why_not)
        results = [Answer(topic="orders", partition_result=[each])]
        return Answer(error_code=ErrorCode.none, replica_election_results=results)

    def _orders(self) -> Any:
        told = super()._orders()
        told.partitions[0].isr_nodes = self.isr
        return told

    @property
    def elected(self) -> list[Any]:
        return [
            fields["topic_partitions"] for key, fields in self.asked if key is ApiKey.elect_leaders
        ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Led:
    return Led(monkeypatch)


def test_a_leader_goes_back_though_nothing_moves(
    cluster: Led, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan knows the order of replicas, which is even: nothing was done, and the alert went on."""
    assert main([*REBALANCE, "--yes"]) == 0
    assert cluster.elected == [[{"topic": "orders", "partitions": [0]}]]
    assert capsys.readouterr().out == (
        "1 leader to go back to the first of their replicas\n1 leader went back\n"
    )
    assert main([*REBALANCE, "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"done": True, "bytes_copied": 0, "moves": [], "leaders": [BACK]}


def test_no_leader_goes_back_that_was_not_agreed_to(
    cluster: Led, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*REBALANCE, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["done"], told["leaders"]) == (False, [BACK])
    assert main([*REBALANCE]) == 1
    assert capsys.readouterr().err == (
        "fencepost: 1 leader would go back to the first of their replicas. To do that, say --yes.\n"
    )
    assert cluster.elected == []


@pytest.mark.parametrize(
    ("leader", "isr", "down"),
    [(1, [1, 2, 3], None), (2, [2, 3], None), (2, [1, 2, 3], 9001), (NO_LEADER, [1, 2, 3], None)],
)
def test_who_leads_already_or_can_not_is_not_elected(
    cluster: Led, capsys: pytest.CaptureFixture[str], leader: int, isr: list[int], down: int | None
) -> None:
    cluster.leader, cluster.isr = leader, isr
    words = ["node", "rebalance", "--bootstrap", "127.0.0.1:9002", "--yes"]
    if down is not None:
        cluster.leads, cluster.replicas = 2, [1]  # none of it can go elsewhere
        cluster.down = {down}
    main(words)
    assert cluster.elected == []
    assert "went back" not in capsys.readouterr().out


@pytest.mark.usefixtures("cluster")
def test_what_moves_gets_its_leader_when_it_has_arrived() -> None:
    with Wire("127.0.0.1:9001") as wire:
        image = read_image(wire)
    assert who_goes_back(image, ()) == [Back("orders", 0, 2, 1)]
    assert who_goes_back(image, {("orders", 0)}) == []


def test_a_leader_that_does_not_go_back_is_said_with_why(
    cluster: Led, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.why_not = "it has just left the ISR"
    assert main([*REBALANCE, "--yes", "--json"]) == 1
    said = capsys.readouterr()
    assert said.err == "fencepost: orders-0 is led by node 2 still: it has just left the ISR\n"
    assert json.loads(said.out)["done"] is False and json.loads(said.out)["leaders"] == []
