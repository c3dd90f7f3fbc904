"""The folder of a run, from its first moment on."""

import errno
import json

import pytest
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.runs import commands
from fencepost.chaos.runs.folder import FAULTS, FIGURES, HISTORY, NoRun, RunFolder
from fencepost.chaos.runs.judging import judge
from fencepost.chaos.runs.run import Run
from fencepost.node.main import main
from spoilt_history import forget_figures

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


OPS = [
    Txn("send", "ok", "a", n, sends=[Sent("t0-0", n, n - 1)], began_s=n, ended_s=n + 0.5)
    for n in range(1, 5)
]
POLLS = [Polled("t0-0", n - 1, n, n) for n in range(1, 5)]
READ = [
    Txn("read", "ok", process, polls=POLLS, began_s=9.0, ended_s=9.5) for process in ("r", FINAL)
]

STRUCK = [
    {"id": "1", "at_s": 1.0, "until_s": 2.0, "fault": "kill", "nodes": [1]},
    {"id": "2", "at_s": 3.0, "until_s": 4.0, "fault": "pause", "nodes": [2]},
]


def ended(path) -> RunFolder:
    """What its clients did was written down in two pieces, and the run came to its end."""
    folder = RunFolder(path)
    folder.create({"nodes": 3, "unknown": []})
    for some in (OPS, READ):
        folder.append_text(HISTORY, map(to_line, some))
    folder.append(FAULTS, STRUCK)
    folder.write(folder.read() | folder.written)
    return folder


def test_a_history_that_lacks_whole_lines_is_cut_wherever_they_were(tmp_path) -> None:
    folder = ended(tmp_path / "run")
    assert judge(folder, lambda _: None)["verdict"] == "valid"
    whole = folder.history.read_text().splitlines(keepends=True)
    for lines, says in (
        (whole[:-1], "5 lines of 6 are there"),
        (whole[:2] + whole[3:], "5 lines of 6 are there"),  # what was read of it is no phantom
        ([], "0 lines of 6 are there"),
        ([*whole, whole[-1]], "7 lines of 6 are there"),
        ([whole[1], whole[0], *whole[2:]], "they are not the 6 lines that were written"),
        ([*whole[:-1], whole[-1].rstrip()], "5 lines of 6 are there"),
    ):
        folder.history.write_text("".join(lines))
        found = judge(RunFolder(tmp_path / "run"), lambda _: None)
        assert found["verdict"] == folder.read()["verdict"] == "unknown"
        assert found["why"] == f"the history is cut: {says}"
    folder.history.write_text("".join(whole))
    assert judge(folder, lambda _: None)["verdict"] == "valid"


def test_of_a_run_that_has_lost_a_fault_nothing_is_said(tmp_path) -> None:
    """What is owed while it goes on, and after it, would be asked of nobody."""
    folder = ended(tmp_path / "run")
    file = folder.path / FAULTS
    whole = file.read_text().splitlines(keepends=True)
    for lines, says in (
        (whole[:1], "1 lines of 2 are there"),
        ([whole[0], whole[1][:-5]], "1 lines of 2 are there"),
        ([whole[0], whole[1].replace("pause", "grass")], "they are not the 2 lines"),
    ):
        file.write_text("".join(lines))
        found = judge(RunFolder(tmp_path / "run"), lambda _: None)
        assert found["verdict"] == "unknown"
        assert found["why"].startswith(f"the list of faults is cut: {says}")
    file.unlink()
    assert "0 lines of 2" in judge(folder, lambda _: None)["why"]
    file.write_text("".join(whole))
    assert judge(folder, lambda _: None)["verdict"] == "valid"


def test_a_history_without_figures_is_judged_as_it_is_and_one_with_damaged_ones_is_cut(
    tmp_path,
) -> None:
    folder = ended(tmp_path / "run")
    for figures in (3, [], {}, {"lines": "6"}, {"lines": 6}):
        folder.write(folder.read() | {FIGURES[HISTORY][0]: figures})
        assert judge(folder, lambda _: None)["verdict"] == "unknown"
    forget_figures(folder)
    assert judge(folder, lambda _: None)["verdict"] == "valid"


def test_what_could_not_be_written_is_missed(tmp_path) -> None:
    """A disk that is full in the middle of a line, and has room again for the next one."""
    folder = RunFolder(tmp_path / "run")
    folder.create({"nodes": 3, "unknown": []})
    folder.append_text(HISTORY, map(to_line, OPS))
    folder.history.rename(tmp_path / "away")
    folder.history.mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        folder.append_text(HISTORY, map(to_line, OPS[:1]))
    folder.history.rmdir()
    (tmp_path / "away").rename(folder.history)
    folder.write(folder.read() | folder.written)
    assert "4 lines of 5" in judge(folder, lambda _: None)["why"]


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


def test_a_folder_that_can_hold_no_run_is_refused_before_anything_is_said_of_it(
    tmp_path, monkeypatch, capsys
) -> None:
    """It was named as the place where the run is, and then "nothing is known of this run" was said, with an error of Python's."""
    monkeypatch.setattr(Run, "go", lambda _: pytest.fail("it began"))
    (tmp_path / "letter").touch()
    for where, why in (
        (tmp_path, f"{tmp_path} is not empty: name a folder that is not there yet with --out"),
        (tmp_path / "letter", "can't hold a run: File exists; name a folder"),
        (tmp_path / "letter" / "run", "can't hold a run: Not a directory; name a folder"),
    ):
        assert main(["chaos", "run", "--faults", "none", "--out", str(where)]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f"fencepost: {where} ") and why in told.err


def test_a_folder_that_nobody_may_write_in_is_refused_in_a_sentence(
    tmp_path, monkeypatch, capsys
) -> None:
    def refuses(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Run, "go", lambda _: pytest.fail("it began"))
    monkeypatch.setattr(commands, "TemporaryFile", refuses)
    assert main(["chaos", "run", "--faults", "none", "--out", str(tmp_path / "run")]) == 2
    assert "run can't hold a run: Permission denied; name a folder" in capsys.readouterr().err
