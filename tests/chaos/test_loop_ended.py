"""What a kill loop leaves when it is ended in the middle; and that word, exit code and folder say the same."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fencepost.chaos.checkers.history import FINAL, Operation, to_line
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from fencepost.chaos.checkers.txn_history import to_line as txn_to_line
from fencepost.chaos.checkers.verdict import judge
from fencepost.chaos.harness import loop_frame
from fencepost.chaos.harness.growing import of_notes, of_stream
from fencepost.chaos.harness.kept_run import KeptRun
from fencepost.chaos.harness.loop_frame import BrokenPromise, Outcome, run_loop
from fencepost.chaos.harness.processes import DidNotStart
from fencepost.chaos.runs.folder import RunFolder
from fencepost.chaos.runs.judging import judge as judge_again
from fencepost.chaos.workloads.idempotent_stream import Damaged

SENT = Operation("send", "ok", 1, "t-0", 3, 0, began_s=1.0, ended_s=2.0)
READ = Operation("read", "ok", "follower", "t-0", 3, 0, 1, ended_s=2.5)
FOUND = Operation("read", "ok", FINAL, "t-0", 3, 0, 1, ended_s=9.0)


def chosen(folder: Path, *more: str) -> argparse.Namespace:
    options = loop_frame.options("", producers=1, partitions=1, rate=1, spoils=())
    return options.parse_args(["--out", str(folder), *more])


def outcome(history: list, kept: KeptRun, *, struck: bool = True, broken=()) -> Outcome:
    kept.begin()
    if struck:
        with kept.fault("kill -9"):
            kept.hit(1)
    return Outcome([], judge(history), map(to_line, history), broken)


def raised(error: BaseException):
    def run(*_) -> Outcome:
        raise error

    return run


ENDS = {
    "valid": (lambda _c, _d, kept: outcome([SENT, READ, FOUND], kept), "valid", 0),
    "nobody was shown anything": (
        lambda _c, _d, kept: outcome([SENT, FOUND], kept),
        "unknown",
        2,
    ),
    "lost": (lambda _c, _d, kept: outcome([SENT], kept), "invalid", 1),
    "differs": (lambda _c, _d, kept: outcome([SENT, FOUND], kept, broken=["x"]), "invalid", 1),
    "nothing acknowledged": (lambda _c, _d, kept: outcome([], kept), "unknown", 2),
    "no fault struck": (
        lambda _c, _d, kept: outcome([SENT, READ, FOUND], kept, struck=False),
        "unknown",
        2,
    ),
    "does not start": (raised(DidNotStart("false ended with exit code 1")), "unknown", 2),
    "no progress": (raised(BrokenPromise("nothing was acknowledged")), "invalid", 1),
    "damage": (raised(Damaged("a record has other bytes")), "invalid", 1),
    "what nobody foresaw": (raised(AssertionError("node 2 does not run")), "unknown", 2),
    "Ctrl-C": (raised(KeyboardInterrupt()), "unknown", 2),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_word_the_exit_code_and_the_folder_say_the_same(tmp_path, capsys, end) -> None:
    run, word, code = ENDS[end]
    assert run_loop("kill-loop", chosen(tmp_path / "run"), run) == code
    printed = capsys.readouterr().out
    words = {each.upper() for each in ("valid", "invalid", "unknown")}
    said = [line.partition(":")[0] for line in printed.splitlines()]
    assert [each for each in said if each in words] == [word.upper()]
    folder = RunFolder(tmp_path / "run")
    assert folder.read()["verdict"] == word
    assert judge_again(folder, lambda _: None)["verdict"] == word or word == "invalid"
    without = chosen(tmp_path / "none", "--data", str(tmp_path / "data" / "x"))
    without.out, without.history = None, tmp_path / "history"
    assert run_loop("kill-loop", without, run) == code


def test_a_page_that_can_t_be_made_changes_no_word(tmp_path, monkeypatch, capsys) -> None:
    def fails(_folder: Path) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr("fencepost.chaos.report.page.write_page", fails)
    run, _, code = ENDS["lost"]
    assert run_loop("kill-loop", chosen(tmp_path / "run"), run) == code
    assert "INVALID: lost" in capsys.readouterr().out
    assert RunFolder(tmp_path / "run").read()["verdict"] == "invalid"


def test_of_a_history_that_is_open_nothing_is_called_lost(tmp_path) -> None:
    for loop, lines in (
        ("cluster-kill-loop", [to_line(SENT), to_line(READ)]),
        ("transactions-kill-loop", _a_reader_whose_sender_is_not_there_yet()),
    ):
        kept = KeptRun(tmp_path / loop)
        kept.create(loop, chosen(tmp_path / loop))
        kept.begin()
        with kept.growing(iter([lines, []]).__next__):
            pass
        again = judge_again(RunFolder(tmp_path / loop), lambda _: None)
        assert again["verdict"] == "unknown"
        assert "the harness was ended before the run was" in again["why"]
        assert "nothing was read after the faults" in again["why"]
        assert again["counts"]["ok"] == 1


def _a_reader_whose_sender_is_not_there_yet() -> list[str]:
    sent = Txn("txn", "ok", "a", 7, sends=[Sent("t-0", 56, 0)], began_s=1.0, ended_s=2.0)
    read = Txn("read", "ok", "b", polls=[Polled("t-0", 1, 64, 8)], began_s=1.0, ended_s=2.0)
    return [txn_to_line(sent), txn_to_line(read)]


def test_what_grows_is_each_line_once_without_the_pass_after_all_faults(tmp_path) -> None:
    history = [SENT]
    new = of_stream(history)
    assert new() == [to_line(SENT)]
    history += [READ, FOUND]
    assert (new(), new()) == ([to_line(READ)], [])

    begun = Txn("txn", "info", "a", 7, sends=[Sent("t-0", 56)], began_s=1.0)
    ended = Txn("txn", "ok", "a", 7, sends=[Sent("t-0", 56, 0)], began_s=1.0, ended_s=2.0)
    notes = tmp_path / "a.jsonl"
    new = of_notes(lambda: [notes])
    notes.write_text(f"{txn_to_line(begun)}\n")
    assert new() == []
    with notes.open("a") as file:
        file.write(f"{txn_to_line(ended)}\n")
    assert (new(), new()) == ([txn_to_line(ended)], [])


def test_what_is_judged_takes_the_place_of_what_grew(tmp_path) -> None:
    kept = KeptRun(tmp_path / "run")
    kept.create("kill-loop", chosen(tmp_path / "run"))
    kept.begin()
    with kept.growing(iter([[to_line(READ)], []]).__next__):
        pass
    kept.judged(judge([SENT, FOUND]), [], map(to_line, [SENT, FOUND]))
    folder = RunFolder(tmp_path / "run")
    assert [line["f"] for line in folder.lines("history.jsonl")] == ["send", "read"]
    assert folder.read()["unknown"] == []


# -- a real one ------------------------------------------------------------------------------------


@pytest.fixture
def loop(tmp_path):
    """In the middle of its load."""
    (tmp_path / "tmp").mkdir()
    words = ["--seconds", "60", "--rate", "50", "--out", str(tmp_path / "run")]
    made = subprocess.Popen(
        [sys.executable, "-m", "fencepost.chaos.harness.kill_loop", *words],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
    )
    try:
        deadline = time.monotonic() + 60
        file = tmp_path / "run" / "history.jsonl"
        while not file.exists() or file.read_text().count("\n") < 200:
            assert time.monotonic() < deadline and made.poll() is None
            time.sleep(0.1)
        yield made
    finally:
        made.kill()
        made.communicate()


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_loop_that_was_killed_keeps_what_it_measured_and_is_unknown(tmp_path, loop) -> None:
    loop.kill()
    loop.wait()
    again = judge_again(RunFolder(tmp_path / "run"), lambda _: None)
    assert again["verdict"] == "unknown" and again["counts"]["ok"] > 50
    assert list((tmp_path / "tmp").iterdir()) == [], "all of it is in its folder"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_loop_that_is_asked_to_end_says_that_it_is_unknown(tmp_path, loop) -> None:
    loop.send_signal(signal.SIGTERM)
    printed = loop.communicate(timeout=120)[0]
    why = "SIGTERM came before the run was through"
    assert f"UNKNOWN: {why}" in printed and loop.returncode == 2
    said = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (said["verdict"], said["why"]) == ("unknown", why)
    assert (tmp_path / "run" / "report.html").is_file()
    assert judge_again(RunFolder(tmp_path / "run"), lambda _: None)["counts"]["ok"] > 50
