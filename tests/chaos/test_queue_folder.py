"""The folder of a run, from its first moment on."""

import json

import pytest
from fencepost.chaos.runs.folder import FAULTS, HISTORY, NoRun, RunFolder
from fencepost.chaos.runs.judging import judge

SUMMARY = {
    "nodes": 3,
    "verdict": "unknown",
    "unknown": ["the harness was ended before the run was"],
}


def test_a_run_whose_harness_was_killed_is_unknown_and_keeps_its_lines(tmp_path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(SUMMARY)
    folder.append(FAULTS, [{"id": "1", "at_s": 1.0}])
    folder.append_text(HISTORY, ['{"f": "crash", "type": "info", "process": "a"}', '{"f": "tx'])
    file = tmp_path / "run" / HISTORY
    file.write_bytes(file.read_bytes()[:-1])
    found = judge(RunFolder(tmp_path / "run"), lambda _: None)
    assert found["verdict"] == "unknown"
    assert "ended before the run was" in found["why"]
    assert "line 2 has no end" in found["why"]
    assert found["counts"]["crash"] == 1


def test_a_folder_that_holds_something_is_not_taken_for_a_run(tmp_path) -> None:
    (tmp_path / "letters").touch()
    with pytest.raises(NoRun, match="is not empty"):
        RunFolder(tmp_path).create(SUMMARY)


def test_a_folder_without_a_run_or_with_a_damaged_one_is_refused(tmp_path) -> None:
    with pytest.raises(NoRun, match="holds no run"):
        RunFolder(tmp_path).read()
    for wrong in ("{", "[1]"):
        (tmp_path / "run.json").write_text(wrong)
        with pytest.raises(NoRun, match="nothing can be said"):
            RunFolder(tmp_path).read()


def test_a_torn_line_of_faults_is_left_out(tmp_path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(SUMMARY)
    (tmp_path / "run" / FAULTS).write_text(json.dumps({"id": "1"}) + '\n{"id": ')
    assert folder.lines(FAULTS) == [{"id": "1"}]
