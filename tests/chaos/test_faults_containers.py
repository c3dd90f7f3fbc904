"""Nodes as containers: what their harness makes goes with it, however it goes."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest
from fencepost.chaos.faults.container_image import docker
from fencepost.chaos.faults.containers import LABEL

GONE_S = 30.0


@pytest.mark.slow
@pytest.mark.needs("docker")
def test_a_harness_that_is_killed_leaves_no_container_behind(tmp_path) -> None:
    """The guard is not told: it sees the end of its stdin. Networks and volumes stand for all that it removes."""
    script = """
        import sys, time
        from pathlib import Path
        from fencepost.chaos.faults.container_image import docker
        from fencepost.chaos.faults.containers import Containers
        system = Containers(Path(sys.argv[1]), nodes=1, image="none")
        system.start_guard()
        docker("volume", "create", "--label", system.label, f"{system.lab}-1")
        docker("network", "create", "--label", system.label, f"{system.lab}-peers")
        print(system.label, flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    harness = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    label = harness.stdout.readline().strip()
    assert label == f"{LABEL}={harness.pid}"

    def left() -> list[str]:
        mine = ("--filter", f"label={label}")
        return (
            docker("network", "ls", "-q", *mine).split()
            + docker("volume", "ls", "-q", *mine).split()
        )

    assert len(left()) == 2
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    deadline = time.monotonic() + GONE_S
    while left():
        assert time.monotonic() < deadline, f"{left()} are still there"
        time.sleep(0.1)
