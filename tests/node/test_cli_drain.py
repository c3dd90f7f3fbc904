"""`node drain` says that a node is empty only where it is: others create topics, cancel moves, or answer for long ago."""

import json
from collections.abc import Callable
from types import SimpleNamespace as Answer
from typing import Any
from uuid import UUID

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import node as command
from fencepost.node.cli.wire import Wire
from fencepost.node.main import main

EMPTY = "node 3 is empty: it may be stopped and forgotten"
DRAIN = ("node", "drain", "3", "--yes", "--bootstrap", "127.0.0.1:9002")


class DrainedCluster(ToldCluster):
    """Topics of one partition. Moves arrive when they are looked at for the second time; then `then` happens, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(Wire, "sleep", lambda *_: None)
        self.voters = [1, 2]
        self.topics: dict[str, tuple[int, ...]] = {"orders": (3, 1)}
        self.targets: dict[str, tuple[int, ...]] = {}
        self.then: Callable[[], None] = lambda: None
        self.old: dict[
            int, dict[str, tuple[int, ...]]
        ] = {}  # what a node takes for the topics, by port
        self.looks = 0

    def _ask_at(self, address: tuple[str, int], key: ApiKey, fields: dict[str, Any]) -> Any:
        match key:
            case ApiKey.alter_partition_reassignments:
                for topic in fields["topics"]:
                    self.targets[topic["name"]] = tuple(topic["partitions"][0]["replicas"])
                self.looks = 0
                return Answer(error_code=ErrorCode.none, responses=_answered(fields["topics"]))
            case ApiKey.list_partition_reassignments:
                return self._moving()
            case ApiKey.describe_topic_partitions:
                topics = self.old.get(address[1], self.topics)
                wanted = [each["name"] for each in fields["topics"]] or sorted(topics)
                found = [self._topic(each, topics[each]) for each in wanted if each in topics]
                return Answer(topics=found, next_cursor=None)
            case ApiKey.elect_leaders:
                return Answer(error_code=ErrorCode.none, replica_election_results=[])
        return super()._ask_at(address, key, fields)

    def _moving(self) -> Any:
        self.looks += 1
        if self.targets and self.looks > 1:
            then, self.then = self.then, lambda: None
            then()
            self.topics |= self.targets
            self.targets = {}
        topics = [
            Answer(name=each, partitions=[_moved(self.targets[each])]) for each in self.targets
        ]
        return Answer(topics=topics)

    def _topic(self, name: str, replicas: tuple[int, ...]) -> Any:
        self.replicas = list(replicas)
        told = self._orders()
        return Answer(**{**vars(told), "name": name, "topic_id": UUID(int=hash(name) & 0xFFFF)})


def _moved(target: tuple[int, ...]) -> Any:
    return Answer(partition_index=0, replicas=target, adding_replicas=target, removing_replicas=())


def _answered(topics: Any) -> Any:
    answer = Answer(partition_index=0, error_code=ErrorCode.none, error_message=None)
    return [Answer(name=each["name"], partitions=[answer]) for each in topics]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> DrainedCluster:
    return DrainedCluster(monkeypatch)


def test_a_topic_that_is_created_during_the_drain_is_moved_too(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody but the command knows that node 3 is being emptied."""
    cluster.then = lambda: cluster.topics.update(late=(2, 3))
    assert main(DRAIN) == 0
    said = capsys.readouterr()
    assert "late-0 came to node 3 meanwhile" in said.err
    assert said.out.endswith(f"{EMPTY}\n")
    assert not [each for each in cluster.topics.values() if 3 in each]


def test_a_program_gets_one_document_with_all_that_was_moved(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.then = lambda: cluster.topics.update(late=(2, 3))
    assert main([*DRAIN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["done"]
    assert [each["topic"] for each in found["moves"]] == ["orders", "late"]


def test_a_node_to_which_topics_come_again_and_again_is_not_called_empty(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_more() -> None:
        cluster.topics[f"late{len(cluster.topics)}"] = (2, 3)
        cluster.then = one_more

    cluster.then = one_more
    assert main(DRAIN) == 1
    said = capsys.readouterr()
    assert EMPTY not in said.out
    assert "node 3 is not empty: late5-0 came to it" in said.err
    assert f"emptied {command.DRAIN_ROUNDS} times" in said.err


def test_what_only_the_quorums_leader_knows_yet_keeps_a_node_from_being_empty(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 2, which the command asks, has not heard of the new topic."""

    def create() -> None:
        cluster.topics["late"] = (2, 3)
        cluster.old[9002] = {"orders": (2, 1)}

    cluster.then = create
    assert main(DRAIN) == 0
    assert "late-0 came to node 3 meanwhile" in capsys.readouterr().err
    assert 3 not in cluster.topics["late"]


def test_a_node_is_not_called_empty_when_nobody_can_tell(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leader of the quorum is not reached from here; then nobody leads it."""
    for happens in (lambda: cluster.down.add(9001), lambda: setattr(cluster, "leads", None)):
        cluster.topics, cluster.down = {"orders": (3, 1)}, set()
        cluster.then = happens
        assert main(DRAIN) == 1
        said = capsys.readouterr()
        assert EMPTY not in said.out
        assert "1 partition moved" in said.out
        assert "leader of the metadata quorum" in said.err or "Nobody leads" in said.err


def test_a_drain_whose_moves_others_cancel_ends_with_1(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.then = lambda: setattr(cluster, "targets", {})
    assert main(DRAIN) == 1
    said = capsys.readouterr()
    assert EMPTY not in said.out
    assert "orders-0 stays: it is on 3,1, cancelled or changed by others" in said.err


@pytest.mark.parametrize(
    ("votes", "down", "said"),
    [
        ([1, 2, 3], 0, "it still votes: `fencepost node voters remove 3` before it is stopped"),
        ([1, 2, 3], 9002, "of nodes 1, 2, which would vote without it, node 2 can't be reached"),
        ([1, 3], 0, "it still votes"),
        ([3], 0, "it alone votes"),
    ],
)
def test_a_node_that_votes_is_empty_and_not_to_be_stopped(
    votes: list[int],
    down: int,
    said: str,
    cluster: DrainedCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever believed "it may be stopped" took the majority along with it."""
    cluster.voters, cluster.down = votes, {down}
    cluster.topics = {"orders": (3,)}
    assert main([*DRAIN[:-1], "127.0.0.1:9001"]) == 0
    out = capsys.readouterr().out
    assert "it may be stopped" not in out
    assert said in out.splitlines()[-1]
    assert out.splitlines()[-1].startswith("node 3 is empty, but it ")


def test_a_program_hears_of_the_vote_beside_its_document(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.voters = [1, 2, 3]
    assert main([*DRAIN, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["done"]
    assert "node 3 is empty, but it still votes" in said.err


@pytest.mark.parametrize(
    ("down", "said"),
    [
        (
            {9002},
            (
                "without node 3 only 1 node is alive: add a node first; or, if node 3 is gone for good, start one with node.id=3"
                " and an empty folder: it copies what it had. Node 2 is down: start it again first."
            ),
        ),
        ({9003}, "without node 3 only 2 nodes are alive: add a node first"),
    ],
)
def test_a_node_that_is_down_is_named_as_what_keeps_another_from_being_drained(
    cluster: DrainedCluster, capsys: pytest.CaptureFixture[str], down: set[int], said: str
) -> None:
    cluster.topics, cluster.down = {"orders": (1, 2, 3)}, down
    words = ["node", "drain", "3", "--yes", "--bootstrap", "127.0.0.1:9001"]
    assert main(words) == 1
    told = capsys.readouterr().err
    assert said in told
    assert ("is down" in told) == (9002 in down)
