"""Real processes on this machine: started, killed and waited for by process id, and never left behind.

INVARIANT  a process started here ends with the one that started it, however that one ends.
PREVENTS   a broker that outlives a killed test run and answers the next one's clients on its port.
PROVED BY  tests/chaos/test_processes.py::test_a_child_dies_with_a_parent_that_was_killed
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.node.cli.children import die_with_parent, free_port

__all__ = ["DidNotStart", "Node", "Process", "answers", "fencepost_dev", "free_port"]

POLL_S = 0.005
LOG_TAIL = 4_000  # characters


class DidNotStart(Exception):
    """The process ended, or said nothing in time; the message carries the end of its log."""


def answers(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """One program. Its stdout and stderr go to `log`, which every start continues."""

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self.log = log
        self.environment = dict(environment or {})
        self.started_at = 0.0  # on time.monotonic
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        assert not self.alive, f"{self.command[0]} runs already, as {self.pid}"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self.started_at = time.monotonic()
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - only prctl runs in there
                start_new_session=True,  # a Ctrl-C is the parent's to handle
            )

    @property
    def pid(self) -> int:
        assert self._child is not None, "never started"
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._child is None else self._child.poll()

    def said(self) -> str:
        """What this run of the process has written so far."""
        with self.log.open("rb") as source:
            source.seek(self._log_start)
            return source.read().decode(errors="replace")

    def wait_line(self, start: str, timeout_s: float) -> str:
        """The first line that begins with `start`; DidNotStart when it does not come."""
        for _ in self._attempts(timeout_s, f"did not print {start!r}"):
            text = self.said()
            for line in text[: text.rfind("\n") + 1].splitlines():
                if line.startswith(start):
                    return line
        raise AssertionError("attempts end by raising")

    def wait_port(self, port: int, timeout_s: float) -> None:
        for _ in self._attempts(timeout_s, f"does not answer on port {port}"):
            if answers(port):
                return

    def _attempts(self, timeout_s: float, complaint: str) -> Iterator[None]:
        deadline = time.monotonic() + timeout_s
        over = False
        while not over:
            over = not self.alive or time.monotonic() >= deadline  # before the look, so it is last
            yield
            time.sleep(POLL_S)
        ended = f"ended with exit code {self.exit_code}"
        why = f"{complaint} within {timeout_s:g} s" if self.alive else ended
        raise DidNotStart(f"{self.command[0]} {why}; {self.log} ends:\n{self.said()[-LOG_TAIL:]}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Nothing happens when it has ended already."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM and wait; SIGKILL when that takes too long. The exit code."""
        if self._child is None:
            return 0
        self._child.terminate()
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def resident_bytes(self) -> int:
        return resident_bytes_of(self.pid)

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.pid)


def resident_bytes_of(pid: int) -> int:
    """Memory in RAM now (VmRSS). Linux only."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def cpu_seconds_of(pid: int) -> float:
    """CPU time used since its start, in user mode and in the kernel. Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Node:
    """A broker on one port and one folder, which may be killed and started again on both.

    `command` stands for any broker that runs as one process: `{port}` and `{data}` are filled in, and
    it counts as ready when it prints `ready …`, or without `prints_ready` when the port accepts.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        command: Sequence[str] | None = None,
        prints_ready: bool = True,
        environment: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self.prints_ready = prints_ready
        self.ready_timeout_s = ready_timeout_s
        filled = [
            part.replace("{port}", str(self.port)).replace("{data}", str(data))
            for part in command or fencepost_dev()
        ]
        log = data.parent / f"{data.name}.log"
        self.process = Process(filled, log=log, environment=environment)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start it without waiting until it serves."""
        self.process.start()

    def wait_ready(self) -> float:
        """Seconds from the start until it served. DidNotStart when it does not come so far."""
        if self.prints_ready:
            line = self.process.wait_line("ready ", self.ready_timeout_s)
            assert line == f"ready {self.bootstrap}", line
        else:
            self.process.wait_port(self.port, self.ready_timeout_s)
        return time.monotonic() - self.process.started_at

    def start(self) -> float:
        self.launch()
        return self.wait_ready()

    def kill(self) -> None:
        self.process.kill()

    def stop(self, timeout_s: float = 30.0) -> int:
        return self.process.stop(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()


def fencepost_command() -> list[str]:
    """The command beside this interpreter, or the module when it is not installed as a command."""
    beside = Path(sys.executable).with_name("fencepost")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "fencepost.node.main"]


def fencepost_dev() -> list[str]:
    return [*fencepost_command(), "dev", "--port", "{port}", "--data", "{data}"]
