"""What `fencepost chaos` prints onto a full disk, or for nobody: its work goes on, and is not valid by default."""

import subprocess
import sys
from pathlib import Path

import pytest
from fencepost.chaos.checkers.txn_history import Sent, Txn, to_line
from fencepost.chaos.runs.folder import HISTORY, RunFolder
from support.full_disk import NEEDS_ONE, into_full

FENCEPOST = Path(sys.executable).with_name("fencepost")
WORK = """
import sys
from pathlib import Path
from fencepost.chaos.runs.told import told_whole

def work() -> int:
    print("begins", flush=True)
    print("goes on")
    Path(sys.argv[1]).touch()
    return int(sys.argv[2])

sys.exit(told_whole(work))
"""
NO_ROOM = "fencepost chaos: standard output takes no more (No space left on device): what was found"

pytestmark = NEEDS_ONE


@pytest.mark.parametrize(("code", "ends_with"), [(0, 2), (1, 1), (2, 2)])
def test_a_full_output_ends_no_work_and_is_never_valid(tmp_path, code: int, ends_with: int) -> None:
    done = tmp_path / "done"
    told = into_full([sys.executable, "-c", WORK, done, str(code)])
    assert told[0] == ends_with
    assert told[1].startswith(NO_ROOM) and told[1].count("\n") == 1
    assert done.exists()


def test_a_reader_that_went_away_ends_no_work_and_is_told_nothing(tmp_path) -> None:
    done = tmp_path / "done"
    command = [sys.executable, "-c", WORK, done, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as work:
        assert work.stdout is not None and work.stderr is not None
        work.stdout.close()
        assert work.stderr.read() == b""
    assert work.returncode == 2
    assert done.exists()


@pytest.mark.slow
def test_a_run_is_judged_though_nobody_is_told(tmp_path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({"nodes": 3, "verdict": "valid", "missed": "t0-0 is missing"})
    sent = Txn("send", "ok", "a", 1, sends=[Sent("t0-0", 8, 0)], began_s=1.0, ended_s=1.5)
    folder.append_text(HISTORY, [to_line(sent)])
    code, told = into_full([FENCEPOST, "chaos", "check", folder.path])
    assert code == 1 and told.startswith(NO_ROOM), told
    assert folder.read()["verdict"] == "invalid"
