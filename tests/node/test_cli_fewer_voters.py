"""`node voters remove` where those who are left bear less: that is asked or said first, and what is advised lets nodes start."""

from argparse import Namespace

import pytest
from cluster_on_the_wire import ToldCluster
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli import voters
from fencepost.node.main import main
from fencepost.node.peer_settings import VOTER_COUNTS, peer_settings

REMOVE = ["node", "voters", "remove"]
ONE_MORE = "the death of one more voter stops everything"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ToldCluster:
    return ToldCluster(monkeypatch)


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Namespace(isatty=lambda: True)
    monkeypatch.setattr(voters, "sys", Namespace(stdin=terminal, stdout=terminal))


def answered(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setattr("builtins.input", lambda _: word)


@pytest.mark.parametrize("count", range(1, 6))
def test_names_are_advised_only_where_a_node_starts_with_them(count: int) -> None:
    votes = set(range(1, count + 1))
    said = voters._what_to_name(votes)
    if count in VOTER_COUNTS:
        entries = [f"{each}@127.0.0.1:{9190 + each}" for each in sorted(votes)]
        assert peer_settings(BrokerId(1), entries, "", "", "").voters
        assert said.startswith(f"Name {', '.join(map(str, sorted(votes)))} in every node's")
    else:
        assert said.startswith(
            "Leave controller.quorum.voters as it is on every node: it may name 1, 3 or 5"
        )
        assert f"with {count} no node starts" in said


@pytest.mark.usefixtures("at_a_terminal")
@pytest.mark.parametrize(("word", "is_done"), [("n", False), ("y", True)])
def test_a_person_is_asked_before_two_are_left(
    cluster: ToldCluster, monkeypatch, capsys, word: str, is_done: bool
) -> None:
    answered(monkeypatch, word)
    assert main([*REMOVE, "2"]) == (0 if is_done else 1)
    said = capsys.readouterr()
    assert said.out.startswith(
        f"Nodes 1, 3 will vote then. 2 voters bear no more than 1 does: {ONE_MORE}"
    )
    assert ("node 2 votes as before" in said.err) != is_done
    assert (ApiKey.remove_raft_voter in cluster.keys) == is_done


@pytest.mark.usefixtures("at_a_terminal")
@pytest.mark.parametrize(
    ("votes", "is_asked"),
    [([1, 2], True), ([1, 2, 3], True), ([1, 2, 3, 4], False), ([1, 2, 3, 4, 5], True)],
)
def test_what_is_asked_are_removals_that_leave_an_even_number_or_fewer_than_three(
    cluster: ToldCluster, monkeypatch, votes: list[int], is_asked: bool
) -> None:
    cluster.voters = votes
    answered(monkeypatch, "n")
    assert main([*REMOVE, "2"]) == is_asked
    assert (ApiKey.remove_raft_voter in cluster.keys) != is_asked
    assert main([*REMOVE, "2", "--yes"]) == 0
    assert ApiKey.remove_raft_voter in cluster.keys


def test_a_script_is_told_and_gets_what_it_asked_for(cluster: ToldCluster, capsys) -> None:
    """Faults remove a voter of three, and put it back (`chaos/faults/member_faults.py`)."""
    assert main([*REMOVE, "2"]) == 0
    assert ONE_MORE in capsys.readouterr().err
    assert ApiKey.remove_raft_voter in cluster.keys
    assert main([*REMOVE, "2", "--yes"]) == 0
    assert capsys.readouterr().err == ""


def test_two_voters_are_shown_with_what_one_death_does(cluster: ToldCluster, capsys) -> None:
    cluster.voters = [1, 3]
    assert main(["node", "voters"]) == 0
    assert ONE_MORE in capsys.readouterr().out
