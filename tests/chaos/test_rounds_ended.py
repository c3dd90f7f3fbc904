"""A round that is ended in the middle: its run is asked once, counted, and never left behind. With a run that breaks nobody."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from report_scene import run_json, write

pytestmark = pytest.mark.slow
ROUND = """
import sys
from pathlib import Path
from fencepost.chaos.report.rounds import Rounds, Turn

here = Path(sys.argv[1])
Turn.command = lambda self, _, out: [sys.executable, str(here / "run.py"), str(here), str(out)]
sys.exit(Rounds(here / "out", print).go(iter([Turn("x", ("x",), 7)] * 9), 60.0))
"""
RUN = """
import os, shutil, signal, sys, time

asked = []
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda number, _: asked.append(number))
here, out = sys.argv[1:]
shutil.copytree(f"{here}/left", out)
open(f"{here}/pid.new", "w").write(str(os.getpid()))
os.rename(f"{here}/pid.new", f"{here}/pid")
until = time.monotonic() + 50
while not asked and time.monotonic() < until:
    time.sleep(0.02)
time.sleep(1.0)
open(f"{here}/asked", "a").write(f"{len(asked)};")
sys.exit(2)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def begun(tmp_path):
    """A round, in a group of its own, and the process id of its first run."""
    write(tmp_path / "left", run_json(verdict="unknown", why="SIGTERM came"))
    (tmp_path / "round.py").write_text(ROUND)
    (tmp_path / "run.py").write_text(RUN)
    made = subprocess.Popen(
        [sys.executable, tmp_path / "round.py", tmp_path],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pid = 0
    try:
        until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        yield made, pid
    finally:
        made.kill()
        made.communicate()
        if pid and alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "Ctrl-C"])
def test_a_round_that_is_asked_to_end_asks_its_run_once_and_counts_it(tmp_path, begun, how) -> None:
    made, pid = begun
    if how == "Ctrl-C":  # a terminal tells the whole group
        os.killpg(made.pid, signal.SIGINT)
    else:
        made.send_signal(signal.Signals[how])
    said = made.communicate(timeout=60)[0].splitlines()
    assert not alive(pid)
    assert (tmp_path / "asked").read_text() == "1;"
    assert made.returncode == 2
    assert said[-1].startswith("1 unknown; 1 runs in"), said
    assert any(line.endswith("came before the time was up") for line in said)
    assert (tmp_path / "out" / "index.html").is_file()


@pytest.mark.timeout(90)
def test_a_round_that_was_killed_leaves_no_run_behind(begun) -> None:
    made, pid = begun
    made.kill()
    until(lambda: not alive(pid))
