"""A process that stands still ends itself, or is ended, and says where it stood."""

import ctypes
import signal
import subprocess
import sys
import time

import pytest
from fencepost.chaos.workloads.heartbeat import HANGS, HUNG

MADE = """
import ctypes, os, signal, subprocess, sys, time
from fencepost.chaos.workloads.heartbeat import Heartbeat
heart = Heartbeat({silent}, {locked})
heart.watch()
print("watched", flush=True)
"""


def started(then: str, silent: float, locked: float) -> subprocess.Popen:
    made = MADE.format(silent=silent, locked=locked) + then
    child = subprocess.Popen([sys.executable, "-c", made], stdout=-1, stderr=-1, text=True)
    assert child.stdout is not None and child.stdout.readline() == "watched\n"
    return child


def test_a_process_that_does_not_beat_ends_and_says_where_it_stands() -> None:
    child = started("def in_the_library(): time.sleep(60)\nin_the_library()", 2.0, 30.0)
    _, said = child.communicate(timeout=30)
    assert (child.returncode, child.returncode in HANGS) == (HUNG, True)
    assert "in in_the_library" in said


@pytest.mark.slow
def test_a_process_that_stands_still_with_pythons_lock_held_is_ended_by_the_kernel() -> None:
    assert ctypes.PyDLL(None).sleep  # a call through PyDLL keeps the lock
    child = started(
        "def in_the_library(): ctypes.PyDLL(None).sleep(60)\nin_the_library()", 1.0, 5.0
    )
    _, said = child.communicate(timeout=40)
    assert (child.returncode, child.returncode in HANGS) == (-signal.SIGALRM, True)
    assert "in in_the_library" in said


@pytest.mark.slow
def test_a_process_that_beats_lasts() -> None:
    then = (
        "until = time.monotonic() + 8\nwhile time.monotonic() < until: heart.beat(); time.sleep(.1)"
    )
    with started(then, 5.0, 6.0) as child:
        child.communicate(timeout=30)
    assert child.returncode == 0


@pytest.mark.slow
def test_the_time_in_which_a_process_was_stopped_is_not_counted() -> None:
    with started("time.sleep(9)", 7.0, 30.0) as child:
        time.sleep(1.0)
        child.send_signal(signal.SIGSTOP)
        time.sleep(6.0)
        child.send_signal(signal.SIGCONT)
        child.communicate(timeout=30)
    assert child.returncode == 0
