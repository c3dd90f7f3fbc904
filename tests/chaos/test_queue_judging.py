"""Verdicts of runs, from their folders alone."""

import json

import pytest
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.runs.commands import _check
from fencepost.chaos.runs.folder import ANOMALIES, HISTORY, RunFolder
from fencepost.chaos.runs.judging import judge

SENT = Txn("send", "ok", "a", 1, sends=[Sent("t0-0", 8, 0)], began_s=1.0, ended_s=1.5)
SEEN = Txn("read", "ok", FINAL, polls=[Polled("t0-0", 0, 8, 1)], began_s=9.0, ended_s=9.5)


def run_of(path, *ops, **more):
    folder = RunFolder(path)
    folder.create({"nodes": 3, "unknown": []} | more)
    folder.append_text(HISTORY, map(to_line, ops))
    return folder


def verdict(path, *ops, **more):
    found = judge(run_of(path, *ops, **more), lambda _: None)
    return found["verdict"], found["why"]


def test_a_run_in_which_all_was_found_is_valid(tmp_path) -> None:
    assert verdict(tmp_path / "run", SENT, SEEN)[0] == "valid"


def test_a_run_that_did_not_come_to_its_end_is_unknown(tmp_path) -> None:
    said = verdict(tmp_path / "1", SENT, SEEN, unknown=["nodes [2] never came back"])
    assert said == ("unknown", "nodes [2] never came back")
    assert verdict(tmp_path / "2", SENT) == ("unknown", "nothing was read after the faults")
    assert verdict(tmp_path / "3")[0] == "unknown"


def test_what_was_found_in_a_run_that_was_cut_short_is_invalid_all_the_same(tmp_path) -> None:
    twice = Txn("read", "ok", "r", polls=[Polled("t0-0", 0, 8, 1), Polled("t0-0", 5, 8, 1)])
    said, why = verdict(tmp_path / "run", SENT, twice, unknown=["SIGTERM came"])
    assert said == "invalid"
    assert "1 duplicate" in why
    lines = (tmp_path / "run" / ANOMALIES).read_text().splitlines()
    assert {json.loads(line)["name"] for line in lines} >= {"duplicate"}


def test_final_polls_that_found_not_all_though_all_nodes_served_are_invalid(tmp_path) -> None:
    said, why = verdict(tmp_path / "run", SENT, missed="transactions are still open in t0-0")
    assert (said, why) == ("invalid", "found: 1 unseen")


@pytest.mark.parametrize(
    ("verdicts", "code"), [("v", 0), ("vu", 2), ("ui", 1), ("iu", 1), ("vn", 2)]
)
def test_of_several_runs_the_worst_counts(tmp_path, verdicts, code, capsys) -> None:
    made = {
        "v": lambda at: run_of(at, SENT, SEEN),
        "u": lambda at: run_of(at, SENT),
        "i": lambda at: run_of(at, SENT, missed="x"),
        "n": lambda _: None,
    }
    folders = [tmp_path / str(number) for number in range(len(verdicts))]
    for folder, kind in zip(folders, verdicts, strict=True):
        made[kind](folder)

    class Arguments:
        pass

    arguments = Arguments()
    arguments.folders = folders
    assert _check(arguments) == code, capsys.readouterr().out
