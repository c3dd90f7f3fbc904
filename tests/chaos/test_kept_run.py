"""The run folder that a kill loop leaves with --out."""

import argparse
import json

import pytest
from fencepost.chaos.checkers.history import FINAL, Anomaly, Operation, to_line
from fencepost.chaos.checkers.verdict import Verdict, judge
from fencepost.chaos.harness import kill_loop
from fencepost.chaos.harness.kept_run import KeptRun
from fencepost.chaos.report import digest
from fencepost.chaos.runs.folder import NoRun

CHOSEN = argparse.Namespace(
    seed=7, seconds=60.0, nodes=3, fault=["kill leader"], out="x", spoil=None
)


def lines(folder, name: str) -> list[dict]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def kept(folder) -> KeptRun:
    made = KeptRun(folder)
    made.create("cluster-kill-loop", CHOSEN)
    made.begin()
    return made


def test_a_loop_that_is_killed_leaves_a_run_of_which_nothing_is_known(tmp_path) -> None:
    run = kept(tmp_path / "run")
    with run.fault("kill leader"):
        run.hit(2)
        said = json.loads((tmp_path / "run" / "run.json").read_text())
        assert said["verdict"] == "unknown"
        assert said["command"].endswith("--fault 'kill leader' --nodes 3 --seconds 60 --seed 7")
        assert [line["until_s"] for line in lines(tmp_path / "run", "faults")] == [None]
    first, second = lines(tmp_path / "run", "faults")
    assert (
        first["id"] == second["id"]
        and second["nodes"] == [2]
        and second["until_s"] >= first["at_s"]
    )


def test_a_fault_that_hit_nobody_is_none(tmp_path) -> None:
    run = kept(tmp_path / "run")
    with run.fault("kill leader"):
        pass
    assert lines(tmp_path / "run", "faults") == []


def test_recovery_is_from_the_blow_to_the_acknowledgement_of_every_partition_that_was_tried(
    tmp_path,
) -> None:
    run = kept(tmp_path / "run")
    with run.fault("kill leader"):
        run.hit(1)
    blow = run._began_s + lines(tmp_path / "run", "faults")[0]["at_s"]
    sent = [
        Operation("send", "ok", 1, f"t-{n}", n, n, began_s=blow + 0.5, ended_s=blow + 1.0 + n)
        for n in range(3)
    ]
    read = [Operation("read", "ok", FINAL, f"t-{n}", n, n, 1, ended_s=blow + 9.0) for n in range(3)]
    history = [*sent, *read]
    run.judged(judge(history), [], map(to_line, history))
    made = digest.read(tmp_path / "run")
    assert made.verdict == "valid" and made.acknowledged == 3
    assert made.recovery_ms["p50"] == pytest.approx(3_000.0, abs=5.0)
    assert lines(tmp_path / "run", "history")[0]["ended_s"] == pytest.approx(
        blow + 1.0 - run._began_s, abs=1e-5
    )


def test_what_checkers_and_the_loop_have_found_is_in_the_folder_and_invalid(tmp_path) -> None:
    run = kept(tmp_path / "run")
    lost = Anomaly("lost", "t-0", "value 3 is not there")
    run.judged(Verdict((lost,), {"acknowledged": 1, "read at the end": 1}), ["replicas differ"], [])
    said = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (said["verdict"], said["why"]) == ("invalid", "replicas differ; lost")
    assert lines(tmp_path / "run", "anomalies")[0]["name"] == "lost"


def test_a_folder_that_is_in_use_is_refused(tmp_path, capsys) -> None:
    kept(tmp_path / "run")
    with pytest.raises(NoRun, match="is not empty"):
        kept(tmp_path / "run")
    assert kill_loop.main(["--out", str(tmp_path / "run")]) == 2
    assert "is not empty" in capsys.readouterr().out


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = KeptRun()
    run.create("kill-loop", CHOSEN)
    with run.fault("kill leader"):
        run.hit(1)
    run.judged(Verdict((), {"acknowledged": 0, "read at the end": 0}), [], [])
    run.unknown("nothing")
    assert list(tmp_path.iterdir()) == []
