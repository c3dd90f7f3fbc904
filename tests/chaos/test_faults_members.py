"""Commands as faults: when they count as struck, and what is put back."""

import random
import subprocess
from types import SimpleNamespace

import pytest
from fencepost.chaos.faults import member_faults
from fencepost.chaos.faults.fault import Clients, LeftOut, Stage
from fencepost.chaos.faults.member_faults import Drain, Rebalance, Voters
from fencepost.chaos.faults.plan import Strike

ONE = Strike(1, "drain", "one", 0.0, 5.0, "dice")


class Straw:
    name = "straw"

    def __init__(self, nodes: int = 4) -> None:
        self.nodes = tuple(range(1, nodes + 1))
        self.doors = dict.fromkeys(self.nodes, ("127.0.0.1", 1))

    def is_up(self, node: int) -> bool:
        return True


class First:
    """Strikes the first node that it may."""

    def choose(self, target: str, rng: random.Random, among: list[int]) -> list[int]:
        return among[:1]


@pytest.fixture
def stage(monkeypatch) -> Stage:
    monkeypatch.setattr(member_faults, "AGAIN_S", 0.0)
    return Stage(Straw(), First(), Clients())


def answer(monkeypatch, *ends: int | str) -> list[str]:
    """Each command in turn: its exit code, or what it says when it fails. The last one goes on."""
    given, left = [], list(ends)

    def run(command, **_):
        given.append(" ".join(command[command.index("node") :]).partition(" --")[0])
        end = left.pop(0) if len(left) > 1 else left[0]
        if end == "hangs":
            raise subprocess.TimeoutExpired(command, 90.0)
        said = end if isinstance(end, str) else "x"
        return SimpleNamespace(
            returncode=end if isinstance(end, int) else 1, stderr=said, stdout=""
        )

    monkeypatch.setattr(member_faults.subprocess, "run", run)
    return given


@pytest.mark.parametrize("end", [1, "nobody answers", "hangs"])
@pytest.mark.parametrize("kind", [Drain, Voters, Rebalance])
def test_a_command_that_fails_strikes_nobody(stage, monkeypatch, kind, end) -> None:
    answer(monkeypatch, end)
    fault = kind(stage, ONE)
    with pytest.raises(LeftOut, match=r"`node \w+.*` (failed|was given up)"):
        fault.begin()
    fault.heal()


def test_a_command_that_was_done_has_struck(stage, monkeypatch) -> None:
    given = answer(monkeypatch, 0)
    assert "`node drain 1 --yes` done" in Drain(stage, ONE).begin()
    assert given == ["node drain 1"]


def test_a_voter_that_was_removed_is_put_back_however_often_that_fails(stage, monkeypatch) -> None:
    given = answer(monkeypatch, 0, 0, 0, 1, "hangs", 0)
    fault = Voters(stage, ONE)
    fault.begin()
    assert fault.heal().endswith("`node voters add 1` done")
    assert given == [
        "node voters remove 1",
        "node voters add 4",
        "node voters remove 4",
        *["node voters add 1"] * 3,
    ]


def test_a_voter_that_cannot_be_put_back_is_trouble(stage, monkeypatch) -> None:
    monkeypatch.setattr(member_faults, "UNDO_S", 0.0)
    answer(monkeypatch, 0, 0, 0, "no majority")
    fault = Voters(stage, ONE)
    fault.begin()
    with pytest.raises(TimeoutError, match="no majority"):
        fault.heal()


def test_a_voter_that_stays_though_it_was_to_go_again_is_trouble(stage, monkeypatch) -> None:
    monkeypatch.setattr(member_faults, "UNDO_S", 0.0)
    answer(monkeypatch, 0, 0, "no majority")
    fault = Voters(stage, ONE)
    fault.begin()
    with pytest.raises(TimeoutError, match=r"node voters remove 4.*no majority"):
        fault.heal()


def test_a_drained_node_that_is_given_nothing_back_is_trouble(stage, monkeypatch) -> None:
    """It had no partition for the rest of a run that was valid."""
    given = answer(monkeypatch, 0, 1, 1, 0)
    fault = Drain(stage, ONE)
    fault.begin()
    assert fault.heal() == "`node rebalance --yes` done"
    assert given == ["node drain 1", *["node rebalance"] * 3]
    monkeypatch.setattr(member_faults, "UNDO_S", 0.0)
    answer(monkeypatch, 0, "no controller answers")
    fault = Drain(stage, ONE)
    fault.begin()
    with pytest.raises(TimeoutError, match="no controller answers"):
        fault.heal()


def test_what_a_command_did_that_was_given_up_is_no_trouble(stage, monkeypatch) -> None:
    answer(monkeypatch, 0, 0, 0, "hangs", "Node 1 is a voter already. …")
    fault = Voters(stage, ONE)
    fault.begin()
    assert "is a voter already" in fault.heal()
