"""Which run comes next, and what a round says of runs that went wrong."""

import sys
from itertools import islice

import pytest
from fencepost.chaos.report import rounds
from fencepost.chaos.report.rounds import Rounds, Turn, turns
from report_scene import bad_run, good_run, run_json, write

KNOWN = {"processes": ["kill", "pause", "cut", "disk"], "kafka": ["kill", "pause", "cut"]}


def fake(monkeypatch, folder, how: str) -> None:
    """A run that leaves a folder which was made before, or whatever `how` says."""
    code = f"import shutil, sys, time; {how}"

    def command(self: Turn, seconds: float, out) -> list[str]:
        return [sys.executable, "-c", code, str(folder / self.name), str(out)]

    monkeypatch.setattr(Turn, "command", command)


COPY = "shutil.copytree(sys.argv[1], sys.argv[2])"


def go(tmp_path, *names: str) -> tuple[int, list[str]]:
    said: list[str] = []
    some = iter([Turn(name, ("x",), 7) for name in names])
    return Rounds(tmp_path / "out", said.append).go(some, 60.0), said


def test_all_targets_meet_the_same_faults_with_the_same_seed_and_each_its_own() -> None:
    first = list(islice(turns(KNOWN, ["queue"], 100), 4))
    ours, theirs, loop, more = first
    assert ours.words[-1] == theirs.words[-1] and ours.seed == theirs.seed == 100
    assert [each.words[each.words.index("--target") + 1] for each in (ours, theirs, more)] == [
        "processes",
        "kafka",
        "processes",
    ]
    assert loop.name == "cluster-kill-loop"
    many = list(islice(turns(KNOWN, ["queue"], 100), 60))
    alone = {
        turn.words[-1]
        for turn in many
        if turn.words[0].startswith("fencepost.node") and "," not in turn.words[-1]
    }
    assert alone == {"kill", "pause", "cut", "disk"}
    assert not any("disk" in turn.words[-1] for turn in many if "kafka" in turn.words)
    assert list(islice(turns(KNOWN, ["queue"], 100), 60)) == many
    assert many != list(islice(turns(KNOWN, ["queue"], 101), 60))


def test_whoever_is_drained_has_a_node_more_than_there_are_copies() -> None:
    """On three nodes there are three copies of everything, and nobody can be drained."""
    known = {"processes": ["kill", "drain"], "kafka": ["kill"]}
    some = [t.words for t in islice(turns(known, ["queue"], 100), 40) if "--faults" in t.words]
    for words in some:
        drained = "drain" in words[words.index("--faults") + 1].split(",")
        assert ("--nodes" in words) == drained
        assert not drained or words[words.index("--nodes") + 1] == "4"
    assert any("--nodes" in words for words in some)


@pytest.mark.slow
def test_the_worst_run_is_what_a_round_ends_with(tmp_path, monkeypatch) -> None:
    good_run(tmp_path / "good")
    bad_run(tmp_path / "bad")
    write(tmp_path / "cut", run_json(verdict="unknown"))
    fake(monkeypatch, tmp_path, COPY)
    assert go(tmp_path, "good")[0] == 0
    assert go(tmp_path, "good", "cut")[0] == 2
    code, said = go(tmp_path, "cut", "bad", "good")
    assert code == 1
    assert "bad, seed 7: Invalid: 1 × lost-write" in said
    assert "1 invalid, 1 unknown, 1 valid; 6 runs in" in said[-1]
    assert (tmp_path / "out" / "index.html").is_file()


@pytest.mark.slow
def test_a_run_that_leaves_nothing_behind_fails_the_round(tmp_path, monkeypatch) -> None:
    fake(monkeypatch, tmp_path, "print('no port is free'); sys.exit(0)")
    code, said = go(tmp_path, "x")
    assert code == 2
    assert "Unknown: it left no run behind" in said[0]
    assert "no port is free" in next((tmp_path / "out").glob("*.log")).read_text()


@pytest.mark.slow
def test_a_run_that_does_not_end_is_ended_and_unknown(tmp_path, monkeypatch) -> None:
    write(tmp_path / "x", run_json(verdict="unknown", why=""))
    monkeypatch.setattr(rounds, "SLOWEST_S", -59.0)
    fake(monkeypatch, tmp_path, f"{COPY}; time.sleep(600)")
    code, said = go(tmp_path, "x")
    assert code == 2 and "the run ended before it was judged" in said[0]


def test_a_round_in_which_nothing_was_run_is_no_good_one(tmp_path) -> None:
    code, said = go(tmp_path)
    assert code == 2 and "nothing was run" in said[-1]
