"""The harness itself: what it starts it can end, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from fencepost.chaos.harness.processes import DidNotStart, Node, Process

SERVER = """
import socket, sys
door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("noise", flush=True)
print("ready 127.0.0.1:" + sys.argv[1], flush=True)
while True:
    door.accept()[0].close()
"""


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def node(tmp_path):
    command = [sys.executable, "-c", SERVER, "{port}"]
    node = Node(tmp_path / "data", command=command, ready_timeout_s=60)
    yield node
    node.kill()


@pytest.mark.slow
def test_a_node_that_was_killed_starts_again_on_its_port(node) -> None:
    node.start()
    first = node.process.pid
    node.kill()
    assert not running(first)
    node.start()
    assert node.process.pid != first
    assert node.stop() == -signal.SIGTERM


@pytest.mark.slow
def test_a_node_without_a_ready_line_is_ready_when_its_port_answers(tmp_path) -> None:
    command = [sys.executable, "-c", SERVER, "{port}"]
    with Node(tmp_path / "data", command=command, prints_ready=False) as node:
        assert node.process.resident_bytes() > 1_000_000
        assert node.process.cpu_seconds() >= 0


def test_a_process_that_ends_at_once_is_reported_with_what_it_said(tmp_path) -> None:
    command = ["/bin/sh", "-c", "echo the port is taken >&2; exit 3"]
    process = Process(command, log=tmp_path / "log")
    process.start()
    with pytest.raises(DidNotStart, match=r"exit code 3(.|\n)*the port is taken"):
        process.wait_line("ready ", timeout_s=30)


def test_a_restart_does_not_take_the_last_runs_ready_line_for_its_own(tmp_path) -> None:
    process = Process(["/bin/sh", "-c", "echo ready once"], log=tmp_path / "log")
    process.start()
    assert process.wait_line("ready", timeout_s=30) == "ready once"
    process.stop()
    process.command = ["/bin/sh", "-c", "sleep 5"]
    process.start()
    with pytest.raises(DidNotStart, match="did not print 'ready'"):
        process.wait_line("ready", timeout_s=0.05)
    process.kill()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_child_dies_with_a_parent_that_was_killed(tmp_path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from fencepost.chaos.harness.processes import Process
        child = Process(["sleep", "60"], log=Path(sys.argv[1]))
        child.start()
        print(child.pid, flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert running(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while running(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)
