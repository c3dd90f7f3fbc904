"""A campaign's processes: whoever ends the campaign, however, has ended them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

START_S = END_S = 30.0


def session_of(leader: int) -> set[int]:
    """Every process of its session that still runs."""
    found = set()
    for each in Path("/proc").iterdir():
        if not each.name.isdecimal():
            continue
        try:
            state, _, _, session = (each / "stat").read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
        if int(session) == leader and state != "Z":
            found.add(int(each.name))
    return found


@pytest.mark.slow
def test_no_worker_is_left_behind_by_a_campaign_that_was_killed() -> None:
    words = ["sim", "run", "--seeds", "0..1000000", "--jobs", "2"]
    campaign = subprocess.Popen(
        [sys.executable, "-m", "fencepost.node.main", *words],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        began = time.monotonic()
        while len(session_of(campaign.pid)) < 5:  # itself, Python's two helpers, two workers
            assert time.monotonic() - began < START_S, session_of(campaign.pid)
            time.sleep(0.05)
        campaign.kill()
        campaign.wait()
        killed = time.monotonic()
        while left := session_of(campaign.pid):
            assert time.monotonic() - killed < END_S, left
            time.sleep(0.05)
    finally:
        for each in session_of(campaign.pid):
            os.kill(each, signal.SIGKILL)
