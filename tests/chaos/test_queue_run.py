"""Whole runs on three real nodes, short ones; and one that is asked to end in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fencepost.node.main import main
from spoilt_history import put_in_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SHORT = ["--clients", "3", "--keys", "4", "--crash-s", "3", "--seed", "3"]


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_whose_nodes_are_killed_is_judged_and_leaves_its_folder(tmp_path, capsys) -> None:
    out = tmp_path / "run"
    words = ["chaos", "run", "--faults", "kill", *SHORT, "--out", str(out)]
    code = main([*words, "--seed", "5", "--seconds", "7"])  # all are killed in the fifth second
    said = capsys.readouterr().out
    run = json.loads((out / "run.json").read_text())
    assert (code, run["verdict"]) == (0, "valid"), said
    assert run["counts"]["records"] > 0
    assert run["counts"]["read at the end"] >= run["counts"]["records"]
    kinds = {op["f"] for op in lines(out / "history.jsonl")}
    assert kinds >= {"txn", "read"}
    assert lines(out / "seen.jsonl")[-1]["acked"] > 0
    assert run["counts"]["faults"] == 1
    last = max(fault["until_s"] or 0.0 for fault in lines(out / "faults.jsonl"))
    assert last <= run["healed_s"] <= run["stopped_s"] - 3.0, "the load goes on after the faults"
    assert run["broken"] == run["unknown"] == []
    assert not (out / "nodes").exists(), "the data of a valid run is not kept"
    # Judged again from what is there: the same.
    assert main(["chaos", "check", str(out)]) == 0
    # Without its last line nothing is known, whatever is wrong with what is left.
    history = lines(out / "history.jsonl")
    (out / "history.jsonl").write_text("".join(f"{json.dumps(op)}\n" for op in history[:-1]))
    assert main(["chaos", "check", str(out)]) == 2
    # As if one record had been lost.
    final = next(op for op in history if op["process"] == "final" and op.get("polls"))
    del final["polls"][0]
    put_in_place(out, history)
    assert main(["chaos", "check", str(out)]) == 1
    assert {each["name"] for each in lines(out / "anomalies.jsonl")} >= {"unseen"}


def test_a_run_that_is_asked_to_end_keeps_what_it_measured_and_leaves_nothing_behind(
    tmp_path,
) -> None:
    out = tmp_path / "run"
    words = ["chaos", "run", "--faults", "none", "--seconds", "90", *SHORT, "--out", str(out)]
    command = [sys.executable, "-m", "fencepost.node.main", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        history = out / "history.jsonl"
        while not history.exists() or '"f": "txn", "type": "ok"' not in history.read_text():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    run = json.loads((out / "run.json").read_text())
    assert (process.returncode, run["verdict"]) == (2, "unknown"), said
    assert "SIGTERM" in run["why"]
    assert run["counts"]["ok"] > 0
    assert still_there(str(out)) == []


def still_there(words: str) -> list[str]:
    """Processes that have the run's folder among their words."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if words in command and int(pid) != os.getpid():
            found.append(command)
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--faults", "flood"], "there is no fault 'flood'"),
        (["--faults", ""], "--faults names none"),
        (["--via", "telepathy"], "no way to consume"),
        (["--clients", "64"], "at most 63"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_anything_begins(
    tmp_path, words, said, capsys
) -> None:
    assert main(["chaos", "run", *words, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
