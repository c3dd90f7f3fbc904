"""A campaign leaves a line of JSON, and its traces are the same when the same seeds are run again."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest
from fencepost.chaos.campaigns import commands, runner
from fencepost.chaos.campaigns.again import Twin
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.campaigns.summary import Summary, append, spans
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.schedule import Struck

SHORT = Plan(campaign="one-node", seed=2, seconds=3.0)


def ran(words: str) -> int:
    parser = argparse.ArgumentParser()
    commands.configure(parser)
    return commands.run(parser.parse_args(words.split()))


@pytest.mark.slow
def test_each_campaign_of_a_run_appends_one_line(tmp_path: Path) -> None:
    file = tmp_path / "summary.jsonl"
    words = f"run --campaign one-node --seconds 3 --jobs 1 --check-every 0 --summary {file}"
    assert ran(f"{words} --seeds 3..5 --check-first 0") == 0
    assert ran(f"{words} --seeds 3..5 --check-first 1") == 0
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert (first["campaign"], first["seeds"], first["runs"]) == ("one-node", "3..5", 2)
    assert first["failures"] == []
    assert first["virtual_s"] > 0
    assert first["acknowledged"] > 0
    assert sum(first["faults"].values()) > 0
    assert (first["beginnings_run_twice"], second["beginnings_run_twice"]) == (0, 2)
    assert first["traces"] == second["traces"], "the same seeds were not the same runs"
    assert second["different"] == 0


def outcome(seed: int, **what: Any) -> Outcome:
    return Outcome(Plan(campaign="cluster", seed=seed), digest=f"of {seed}", **what)


@pytest.mark.parametrize(("words", "code"), [("", 2), (" --keep-clients none", 0)])
def test_a_campaign_in_which_nothing_was_acknowledged_proves_nothing(
    monkeypatch, capsys, words: str, code: int
) -> None:
    """Others may have got on well beside it; who leaves clients out wants to see the others."""

    def runs(plans: Any, _jobs: int, tell: Any, **_: Any) -> runner.Totals:
        totals = runner.Totals()
        for plan in plans:
            one = Outcome(plan, acknowledged=9 * (plan.campaign == "cluster"))
            totals.add(one)
            tell(one)
        return totals

    monkeypatch.setattr(runner, "run_all", runs)
    assert ran(f"run --campaign all --seeds 3 --check-every 0{words}") == code
    said = capsys.readouterr().out
    assert ("quorum: nothing was acknowledged" in said) == (code == 2)
    assert "cluster: nothing" not in said
    assert ran("run --campaign cluster --seeds 3 --check-every 0") == 0


def acknowledging(plans: Any, _jobs: int, tell: Any, **_: Any) -> runner.Totals:
    """As `run_all`: every seed is well, and nothing takes long."""
    totals = runner.Totals()
    for plan in plans:
        one = Outcome(plan, acknowledged=9)
        totals.add(one)
        tell(one)
    return totals


def test_a_summary_that_can_not_be_written_is_refused_before_the_first_seed(
    monkeypatch, capsys, tmp_path: Path
) -> None:
    """All seeds were run, and then a traceback stood where their counts should have."""
    begun = []
    monkeypatch.setattr(runner, "run_all", lambda *_, **__: begun.append(1))
    for file in (tmp_path / "nothing" / "x", tmp_path, tmp_path / ("x" * 300)):
        assert ran(f"run --seeds 0..9 --summary {file}") == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert f"--summary {file} can't be appended to: " in said
        assert "name a file in a folder that is there" in said
    assert not begun


def test_a_disk_that_has_no_room_left_in_the_end_costs_no_count(
    monkeypatch, capsys, tmp_path: Path
) -> None:
    """What a line says is told where it can be; the part of it that had room is taken back, and what was there stays."""
    file = tmp_path / "summary.jsonl"
    append(file, {"a": 1})
    write = os.write
    monkeypatch.setattr(runner, "run_all", acknowledging)
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:20]))
    assert ran(f"run --seeds 3..5 --check-every 0 --summary {file}") == 2
    told = capsys.readouterr()
    assert "2 seeds, 0 virtual seconds" in told.out and "18 acknowledged, 0 failed" in told.out
    said, _, line = told.err.partition("append it: ")
    assert f"--summary {file} lacks the line of cluster: No space left on device" in said
    assert (json.loads(line)["seeds"], json.loads(line)["runs"]) == ("3..5", 2)
    assert file.read_text() == '{"a": 1}\n'


def test_who_reads_a_pipe_is_not_told_of_its_end_before_the_first_seed(
    monkeypatch, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(runner, "run_all", acknowledging)
    assert ran(f"run --seeds 3..5 --check-every 0 --summary {pipe}") == 0
    assert json.loads(os.read(reader, 1 << 16))["runs"] == 2
    os.close(reader)


def test_a_line_says_what_was_asked_for() -> None:
    plan = Plan(campaign="cluster", seed=7, faults=("kill", "pause"), at_once=1, config=("a=1",))
    summary = Summary("cluster")
    summary.add(Outcome(plan))
    line = summary.line(run_twice=0, different=0, interrupted=False)
    assert line["asked"] == "--faults kill,pause --at-once 1 --config a=1"
    plain = Summary("cluster")
    plain.add(outcome(7))
    assert plain.line(run_twice=0, different=0, interrupted=False)["asked"] == ""


def test_a_line_names_what_failed_and_counts_faults_by_kind() -> None:
    summary = Summary("cluster")
    struck = (Struck(1, "kill", 0.5), Struck(2, "kill", 0.6), Struck(4, "cut", 0.7))
    summary.add(outcome(7, failure="lost: x", kind="lost", struck=struck, virtual_s=2.0))
    summary.add(outcome(8, virtual_s=3.0, differs="event 5"))
    line = summary.line(run_twice=1, different=0, interrupted=True)
    assert line["faults"] == {"cut": 1, "kill": 2}
    assert line["virtual_s"] == 5.0
    assert line["different"] == 1
    assert line["interrupted"]
    (failed,) = line["failures"]
    assert (failed["seed"], failed["kind"], failed["what"]) == (7, "lost", "lost: x")
    assert failed["command"] == "fencepost sim run --campaign cluster --seeds 7"


def test_traces_do_not_depend_on_the_order_in_which_seeds_end() -> None:
    one, other = Summary("cluster"), Summary("cluster")
    for seed in (1, 2, 3):
        one.add(outcome(seed))
    for seed in (3, 1, 2):
        other.add(outcome(seed))
    assert one.traces == other.traces
    other.add(outcome(4))
    assert one.traces != other.traces


@pytest.mark.parametrize(
    ("seeds", "said"),
    [([], ""), ([4], "4"), ([0, 1, 2], "0..3"), ([9, 1, 0, 2, 3], "0..4,9"), ([5, 5], "5")],
)
def test_seeds_are_told_as_they_are_asked_for(seeds: list[int], said: str) -> None:
    assert spans(seeds) == said


def test_what_was_there_stays_there(tmp_path: Path) -> None:
    file = tmp_path / "summary.jsonl"
    append(file, {"a": 1})
    append(file, {"a": 2})
    assert [json.loads(line)["a"] for line in file.read_text().splitlines()] == [1, 2]


@pytest.mark.slow
def test_a_run_that_is_cut_short_says_what_the_whole_one_said_until_then() -> None:
    whole = run_plan(SHORT)
    assert len(whole.marks) > 2
    for seconds in (1, 2):
        assert run_plan(SHORT, seconds=seconds).digest == whole.marks[seconds - 1]


@pytest.mark.slow
def test_a_twin_tells_the_beginning_of_one_plan_after_the_other() -> None:
    whole = run_plan(SHORT)
    twin = Twin()
    try:
        assert twin.digest_at(SHORT, 1) == whole.marks[0]
        assert twin.digest_at(SHORT, 2) == whole.marks[1]
    finally:
        twin.end()
