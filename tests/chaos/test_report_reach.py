"""What a machine can be asked for, and that nothing it lacks goes without a word."""

import pytest
from fencepost.chaos.faults import world
from fencepost.chaos.faults.kinds import FAULTS
from fencepost.chaos.harness.processes import DidNotStart
from fencepost.chaos.report import commands, reach, rounds
from fencepost.chaos.report.__main__ import main

LIES = {"clock", "disk-full", "disk-slow", "disk-fail", "power"}


@pytest.fixture
def nothing_runs(monkeypatch) -> list:
    """What a round is told, and that it would have run."""
    told: list = []

    class Told(rounds.Rounds):
        def go(self, all_turns, minutes: float) -> int:
            told.append((dict(self.verdicts), [next(all_turns).words for _ in range(8)]))
            return max((rounds.EXIT_CODES[each] for each in self.verdicts), default=0)

    monkeypatch.setattr(rounds, "Rounds", Told)
    return told


def without_a_compiler(monkeypatch) -> None:
    for module in ("world", "loopback"):
        monkeypatch.setattr(f"fencepost.chaos.faults.{module}.compiler", lambda: None)
    monkeypatch.setattr(reach, "compiler", lambda: None)


def without(monkeypatch, *targets: str) -> None:
    monkeypatch.setattr(reach, "missing", lambda target: "it is not here" * (target in targets))


def test_without_a_compiler_every_fault_that_needs_one_is_named(monkeypatch) -> None:
    without_a_compiler(monkeypatch)
    found = reach.reach(["processes"])
    assert set(found.known["processes"]) == set(FAULTS) - LIES
    assert len(found.lacking) == len(LIES)
    assert "power struck nobody on processes: it takes a C compiler" in found.lacking


def test_a_compiler_that_does_not_work_is_none(monkeypatch) -> None:
    def broken(_folder) -> None:
        raise DidNotStart("gcc can't compile world.c: no headers")

    monkeypatch.setattr(reach, "library", broken)
    monkeypatch.setattr(reach, "compiler", lambda: "gcc")
    found = reach.reach(["processes"])
    assert set(found.known["processes"]) == set(FAULTS) - LIES
    assert any("gcc can't compile world.c: no headers" in lack for lack in found.lacking)


@pytest.mark.skipif(world.compiler() is None, reason="there is no C compiler")
def test_a_machine_that_has_all_lacks_nothing(monkeypatch) -> None:
    without(monkeypatch)
    found = reach.reach(["processes"])
    assert found.known == {"processes": list(FAULTS)} and found.lacking == []


def test_a_round_without_a_target_is_unknown_unless_it_was_left_out_by_name(
    monkeypatch, nothing_runs, capsys
) -> None:
    without(monkeypatch, "kafka", "containers")
    assert main(["rounds"]) == 2
    assert nothing_runs[0][0] == {"unknown": 2}
    assert "unknown: nothing was run on kafka: it is not here" in capsys.readouterr().out
    assert main(["rounds", "--targets", "processes"]) == 0
    assert nothing_runs[1][0] == {}


def test_a_round_without_a_fault_is_unknown_unless_it_was_left_out_by_name(
    monkeypatch, nothing_runs
) -> None:
    without_a_compiler(monkeypatch)
    assert main(["rounds", "--targets", "processes"]) == 2
    assert nothing_runs[0][0] == {"unknown": len(LIES)}
    assert main(["rounds", "--targets", "processes", "--faults", "kill,cut"]) == 0
    verdicts, words = nothing_runs[1]
    assert verdicts == {}
    assert all(set(each[-1].split(",")) <= {"kill", "cut"} for each in words)
    assert main(["rounds", "--targets", "processes", "--faults", "kill,clock"]) == 2
    assert nothing_runs[2][0] == {"unknown": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--targets", "kafkas"], "'kafkas' is no target; there are processes, "),
        (["--faults", "kil"], "'kil' is no fault; there are kill, "),
        (
            ["--targets", "kafka", "--faults", "damage"],
            "none of what was asked for: damage on kafka",
        ),
        (["--targets", "kafka"], "none of what was asked for: kafka"),
    ],
)
def test_a_round_of_nothing_is_refused_in_a_sentence(monkeypatch, capsys, words, said) -> None:
    without(monkeypatch, *(["kafka"] if "--faults" not in words else []))
    monkeypatch.setattr(reach, "faults_of", lambda _: (["kill"], {}))
    assert main(["rounds", *words]) == commands.EXIT_USAGE
    assert said in capsys.readouterr().err
