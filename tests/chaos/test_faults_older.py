"""Older builds: taken from the history or a folder, told apart from today's, and named when they can't be had."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fencepost.chaos.faults import older
from fencepost.chaos.faults.older_node import KNOWS
from fencepost.chaos.faults.processes import Processes
from fencepost.chaos.faults.system import UPGRADE, CannotDo
from fencepost.chaos.faults.systems import system_of
from fencepost.chaos.harness import checkout
from fencepost.chaos.report import reach
from support.some_git import git

# What a build says of itself, from inside.
TELLS = """
import json, runpy, sys
from pathlib import Path
started = runpy.run_path(sys.argv[1])
from fencepost.node import main
main.main = lambda: print(json.dumps([broker.__file__, broker.SUPPORTED_FEATURES, policy.FEATURES]))
from fencepost.cluster.controller import brokers_policy as policy
from fencepost.node import broker
started["run"]()
"""


def test_a_node_that_would_run_another_build_does_not_start(tmp_path) -> None:
    """As if its files were not beside it: then Python goes on to look for others."""
    script = shutil.copy(Path(older.__file__).with_name(older.NODE), tmp_path)
    done = subprocess.run(
        [sys.executable, script, "serve"], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert "is not of the older build in" in done.stderr, done.stderr


@pytest.mark.needs("git")
def test_a_history_that_is_cut_short_has_no_older_build_and_a_sentence_says_so(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert "a checkout with its history" in older.why_none("d2b95e5")
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "all there is")
    assert "a history that has commit d2b95e5" in older.why_none("d2b95e5")
    assert older.why_none("HEAD") == ""


def test_a_machine_without_git_has_no_older_build(monkeypatch) -> None:
    monkeypatch.setattr(older.shutil, "which", lambda _: None)
    assert older.why_none("d2b95e5").startswith("git, ")


def test_who_lacks_the_older_build_is_told_before_anything_begins(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(checkout, "ROOT", tmp_path)  # as a source package is
    with pytest.raises(CannotDo, match=r"an upgrade from HEAD takes .*--older DIR"):
        system_of("processes", tmp_path / "nodes", older="HEAD", faults=["upgrade"])
    assert not (tmp_path / "nodes").exists()
    assert UPGRADE not in Processes(tmp_path / "nodes").can
    (lack,) = (each for each in reach.reach(["processes"], ["upgrade"]).lacking)
    assert lack.startswith("upgrade struck nobody on processes: it takes ")


@pytest.mark.parametrize("inside", ["", "fencepost"])
def test_a_folder_is_a_build_if_a_node_is_in_it(tmp_path, inside: str) -> None:
    kept, made = tmp_path / "kept", tmp_path / "made"
    kept.mkdir()
    assert "holds no build" in older.why_none(str(kept))
    for name in older.PARTS:
        (kept / inside / name).mkdir(parents=True)
        (kept / inside / name / "main.py").write_text(name)
    assert older.why_none(str(kept)) == ""
    older.make(str(kept), made)
    assert {(made / "fencepost" / name / "main.py").read_text() for name in older.PARTS} == set(
        older.PARTS
    )
    assert (made / older.NODE).is_file() and older.called(str(kept)) == str(kept)


@pytest.mark.slow
@pytest.mark.needs("history")
def test_the_older_build_is_that_commit_s_and_knows_less(tmp_path) -> None:
    made = tmp_path / "older"
    older.make(older.OLDER, made)
    decided = "txn/transactions/group_commit_records.py"
    assert "note" not in (made / "fencepost" / decided).read_text()
    assert "note" in (checkout.ROOT / decided).read_text()
    said = subprocess.run(
        [sys.executable, "-c", TELLS, str(made / older.NODE)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        env={"PYTHONPATH": str(made), "PATH": ""},
    )
    file, supported, formed = json.loads(said.stdout)
    assert Path(file).is_relative_to(made)
    for name, level in KNOWS.items():
        assert supported[name] == [0, level] and formed[name] == level
