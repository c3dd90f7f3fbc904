"""`partition move`: what is ordered is what was asked for, and only where it can be."""

import json
from types import SimpleNamespace as Answer
from typing import Any
from uuid import UUID

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import agreed_moves
from fencepost.node.cli.throttling import RATES, THROTTLED
from fencepost.node.main import main

MOVE = ("partition", "move", "orders", "0", "--bootstrap", "127.0.0.1:9001", "--to")


class MovingCluster(ToldCluster):
    """Orders are carried out at once, but for what is under way."""

    under_way: tuple[int, ...] = ()

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.settings: dict[tuple[str, str], str | None] = {}

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        match key:
            case ApiKey.alter_partition_reassignments:
                self.asked.append((key, fields))
                self.replicas = list(fields["topics"][0]["partitions"][0]["replicas"])
                each = Answer(partition_index=0, error_code=ErrorCode.none, error_message=None)
                return Answer(
                    error_code=ErrorCode.none, responses=[Answer(name="orders", partitions=[each])]
                )
            case ApiKey.list_partition_reassignments if self.under_way:
                move = Answer(
                    partition_index=0, adding_replicas=self.under_way, removing_replicas=()
                )
                return Answer(topics=[Answer(name="orders", partitions=[move])])
            case ApiKey.describe_topic_partitions if fields["topics"]:
                names = {each["name"] for each in fields["topics"]}
                told = super()._ask_at(address, key, fields)
                told.topics = [each for each in told.topics if each.name in names]
                return told
            case ApiKey.elect_leaders:
                self.asked.append((key, fields))
                return Answer(error_code=ErrorCode.none, replica_election_results=[])
            case ApiKey.describe_configs:
                return Answer(results=[self._set(e["resource_name"]) for e in fields["resources"]])
            case ApiKey.incremental_alter_configs:
                for resource in fields["resources"]:
                    for each in resource["configs"]:
                        self.settings[resource["resource_name"], each["name"]] = each["value"]
                return Answer(responses=[])
        return super()._ask_at(address, key, fields)

    def _set(self, of: str) -> Any:
        configs = [
            Answer(name=name, value=value, config_source=1)
            for (whose, name), value in self.settings.items()
            if whose == of
        ]
        return Answer(resource_name=of, configs=configs, error_code=ErrorCode.none)

    @property
    def orders(self) -> list[list[int]]:
        return [
            fields["topics"][0]["partitions"][0]["replicas"]
            for key, fields in self.asked
            if key is ApiKey.alter_partition_reassignments
        ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MovingCluster:
    return MovingCluster(monkeypatch)


def test_a_replica_goes_out_and_in_again(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """What mends a damaged log: it is copied anew."""
    assert main([*MOVE, "1,2", "--yes"]) == 0
    assert main([*MOVE, "1,2,3", "--yes", "--json"]) == 0
    assert [list(each) for each in cluster.orders] == [[1, 2], [1, 2, 3]]
    shown = capsys.readouterr().out
    told = json.loads(shown[shown.index("{") :])
    assert told["done"] and told["moves"][0]["to"] == [1, 2, 3]
    assert main([*MOVE, "1,2,3", "--yes"]) == 0
    assert "orders-0 is there: nothing moves" in capsys.readouterr().out
    assert len(cluster.orders) == 2


def test_a_look_and_no_answer_move_nothing(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MOVE, "1", "--dry-run"]) == 0
    assert main([*MOVE, "1"]) == 1
    assert "1 partition would be changed, with 0 B to copy. To do that, say --yes." in (
        capsys.readouterr().err
    )
    assert cluster.orders == []


def test_a_program_is_asked_nothing_at_a_terminal_either(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question went into what it reads, which was no JSON then."""
    monkeypatch.setattr(agreed_moves.sys, "stdin", Answer(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert main([*MOVE, "1", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["error"].endswith("To do that, say --yes.") and cluster.orders == []
    assert main([*MOVE, "1"]) == 0
    assert len(cluster.orders) == 1


@pytest.mark.parametrize(
    ("to", "words", "is_done"),
    [("1,2,3", (), True), ("1,2,3", ("--dry-run",), False), ("1", ("--dry-run",), False)],
)
def test_what_is_there_already_is_done_and_what_was_only_looked_at_is_not(
    cluster: MovingCluster,
    capsys: pytest.CaptureFixture[str],
    to: str,
    words: tuple[str, ...],
    *,
    is_done: bool,
) -> None:
    assert main([*MOVE, to, "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["done"] is is_done
    assert cluster.orders == []


def test_a_throttled_move_leaves_what_throttles_another_topic(cluster: MovingCluster) -> None:
    """Only its own topic was looked at, so the rate went, by which others were throttled."""
    theirs = Answer(name="theirs", topic_id=UUID(int=2), error_code=ErrorCode.none)
    theirs.partitions = cluster._orders().partitions
    cluster.internal = [theirs]
    by_others: dict[tuple[str, str], str | None] = {("", name): "500" for name in RATES}
    by_others["theirs", THROTTLED[0]] = "0:1"
    cluster.settings |= by_others
    assert main([*MOVE, "1", "--yes", "--throttle", "1"]) == 0
    assert by_others.items() <= cluster.settings.items()
    assert cluster.settings["orders", THROTTLED[0]] is None


@pytest.mark.parametrize(
    ("to", "code", "said"),
    [
        ("1,9", 1, "there is no node 9; there are 1, 2, 3"),
        ("1,1", 2, "say each node once, with commas between, for example 1,2,3; the first one leads"),
        ("", 2, "say each node once"),
        ("one", 2, "'one': say each node once"),
        ("-1", 2, "--to -1: say a whole number from 0 to"),
    ],
)  # fmt: skip
def test_where_it_can_not_be_is_refused(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str], to: str, code: int, said: str
) -> None:
    try:
        told = main([*MOVE[:-1], f"--to={to}", "--yes"])
    except SystemExit as ended:
        told = ended.code
    assert told == code
    assert said in capsys.readouterr().err
    assert cluster.orders == []


def test_no_replica_goes_to_a_node_that_is_down(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.replicas, cluster.down = [1, 2], {9003}
    assert main([*MOVE, "1,2,3", "--yes"]) == 1
    assert "node 3 is down, and can't take a replica of orders-0" in capsys.readouterr().err
    assert main([*MOVE, "2,1", "--yes"]) == 0
    assert [list(each) for each in cluster.orders] == [[2, 1]]


def test_what_moves_already_is_left_to_whoever_moves_it(
    cluster: MovingCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.under_way = (3,)
    assert main([*MOVE, "1,2", "--yes"]) == 1
    said = capsys.readouterr().err
    assert "orders-0 is on the move already" in said and "cancel-moves" in said
    assert cluster.orders == []
