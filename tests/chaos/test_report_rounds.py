"""Which run comes next, and what a round says of runs that went wrong."""

import sys
import time
from collections import Counter
from itertools import islice
from types import SimpleNamespace

import pytest
from fencepost.chaos.faults.kinds import FAULTS
from fencepost.chaos.faults.plan import plan
from fencepost.chaos.report import rounds
from fencepost.chaos.report.digest import Digest
from fencepost.chaos.report.rounds import AROUND_S, LOAD_S, Rounds, Turn, turns
from fencepost.chaos.report.struck import Struck
from fencepost.chaos.runs.plan_words import TRANSACTIONAL
from report_scene import bad_run, good_run, run_json, write

KNOWN = {"processes": ["kill", "pause", "cut", "disk"], "kafka": ["kill", "pause", "cut"]}


def fake(monkeypatch, folder, how: str) -> None:
    """A run that leaves a folder which was made before, or whatever `how` says."""
    code = f"import shutil, sys, time; {how}"

    def command(self: Turn, seconds: float, out) -> list[str]:
        return [sys.executable, "-c", code, str(folder / self.name), str(out)]

    monkeypatch.setattr(Turn, "command", command)


COPY = "shutil.copytree(sys.argv[1], sys.argv[2])"


def go(tmp_path, *names: str, **more) -> tuple[int, list[str]]:
    said: list[str] = []
    some = iter([Turn(name, ("x",), 7) for name in names])
    return Rounds(tmp_path / "out", said.append, **more).go(some, 60.0), said


def some_turns(known: dict, many: int, seed: int = 100, struck: Struck | None = None) -> list[Turn]:
    return list(islice(turns(known, ["queue"], seed, struck or Struck()), many))


def faults_of(turn: Turn) -> list[str]:
    return turn.words[-1].split(",") if "--faults" in turn.words else []


def target_of(turn: Turn) -> str:
    return turn.words[turn.words.index("--target") + 1] if "--target" in turn.words else ""


def test_all_targets_meet_the_same_faults_with_the_same_seed_and_each_its_own() -> None:
    first = some_turns(KNOWN, 4)
    ours, theirs, loop, more = first
    assert ours.words[-1] == theirs.words[-1] and ours.seed == theirs.seed == 100
    assert [target_of(each) for each in (ours, theirs, more)] == ["processes", "kafka", "processes"]
    assert loop.name == "cluster-kill-loop"
    many = some_turns(KNOWN, 60)
    alone = {
        turn.words[-1]
        for turn in many
        if turn.words[0].startswith("fencepost.node") and "," not in turn.words[-1]
    }
    assert alone == {"kill", "pause", "cut", "disk"}
    assert not any("disk" in turn.words[-1] for turn in many if "kafka" in turn.words)
    assert some_turns(KNOWN, 60) == many
    assert many != some_turns(KNOWN, 60, seed=101)


def test_whoever_is_drained_has_a_node_more_than_there_are_copies() -> None:
    """On three nodes there are three copies of everything, and nobody can be drained."""
    known = {"processes": ["kill", "drain"], "kafka": ["kill"]}
    some = [turn.words for turn in some_turns(known, 40) if "--faults" in turn.words]
    for words in some:
        drained = "drain" in words[words.index("--faults") + 1].split(",")
        assert ("--nodes" in words) == drained
        assert not drained or words[words.index("--nodes") + 1] == "4"
    assert any("--nodes" in words for words in some)


def test_what_struck_least_in_the_record_is_drawn_first() -> None:
    names = ["kill", "pause", "cut", "slow", "power", "damage", "clock", "voters"]
    often = dict.fromkeys(names, 20) | {"power": 0, "damage": 1}
    runs = [Digest(workload="queue", target="processes", struck=often)]
    loop = Digest(workload="kill-loop", target="processes", struck={"power": 99})
    for seed in range(20):
        first = some_turns({"processes": names}, 1, seed, Struck([*runs, loop]))[0]
        assert {"power", "damage"} <= set(faults_of(first))


def test_now_and_then_two_strike_at_a_time_and_the_queue_has_no_transactions() -> None:
    many = [turn for turn in some_turns(KNOWN, 400) if "--faults" in turn.words]
    two = [turn for turn in many if "--at-once" in turn.words]
    assert 0 < len(two) < len(many) / 4
    assert all(len(faults_of(turn)) > 1 and turn.words[-4:-2] == ("--at-once", "2") for turn in two)
    plain = [turn for turn in many if "--no-transactions" in turn.words]
    assert {target_of(turn) for turn in plain} == {"processes", "kafka"}
    for turn in plain:
        assert "queue" in turn.words and set(faults_of(turn)).isdisjoint(TRANSACTIONAL)


def test_what_strikes_in_this_session_is_counted_too_and_who_cannot_strike_waits_its_turn() -> None:
    known = {"processes": ["kill", "pause", "cut", "drain", "power"]}
    struck, asked = Struck(), Counter()
    for turn in islice(turns(known, ["queue"], 7, struck), 60):
        names = faults_of(turn)
        asked.update(names)
        # Nothing ever comes of a drain.
        done = {name: 1 for name in names if name != "drain"}
        struck.add(Digest(workload="queue", target="processes", struck=done))
    assert min(asked.values()) > asked["drain"] / 3, asked


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_an_hour_of_rounds_has_every_fault_on_processes(seed: int) -> None:
    """With all three targets, by the plans of its runs; drawn at random, some never came in the hour."""
    simple = ["kill", "pause", "restart", "hunt", "zombie", "sleeper", "epochs"]
    members = ["voters", "drain", "rebalance"]
    lies = ["clock", "disk-full", "disk-slow", "disk-fail", "power"]
    known = {
        "processes": list(FAULTS),
        "containers": [*simple, "cut", *members],
        "kafka": [*simple, "cut", "slow", *lies],
    }
    assert set(FAULTS) == {*simple, *members, *lies, "cut", "slow", "damage", "upgrade"}
    kinds = {name: kind.kind() for name, kind in FAULTS.items()}
    struck = Struck()
    for turn in islice(turns(known, ["queue"], seed, struck), int(3_600 / (LOAD_S + AROUND_S))):
        some = {name: kinds[name] for name in faults_of(turn)}
        done = [strike.kind for strike in plan(some, turn.seed, LOAD_S)]
        counts = {name: done.count(name) for name in set(done)}
        struck.add(Digest(workload="queue", target=target_of(turn), struck=counts))
    assert [name for name in FAULTS if not struck.counts["processes", name]] == []


def test_what_this_machine_lacks_is_unknown_however_well_all_else_went(
    tmp_path, monkeypatch
) -> None:
    good_run(tmp_path / "good")
    fake(monkeypatch, tmp_path, COPY)
    lacking = ["nothing was run on kafka: there is no java", "power struck nobody on processes"]
    code, said = go(tmp_path, "good", lacking=lacking)
    assert code == 2
    assert "unknown: nothing was run on kafka: there is no java" in said[-1]
    assert "2 unknown, 1 valid" in said[-1]


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
    has_left = tmp_path / "has left its folder"
    monkeypatch.setattr(
        rounds,
        "time",
        SimpleNamespace(
            monotonic=lambda: 10_000.0 if has_left.exists() else 0.0, strftime=time.strftime
        ),
    )
    fake(monkeypatch, tmp_path, f"{COPY}; open({str(has_left)!r}, 'w'); time.sleep(600)")
    code, said = go(tmp_path, "x")
    assert code == 2 and "the run ended before it was judged" in said[0]


def test_a_round_in_which_nothing_was_run_is_no_good_one(tmp_path) -> None:
    code, said = go(tmp_path)
    assert code == 2 and "nothing was run" in said[-1]
