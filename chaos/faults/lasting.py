"""Processes that are started from a thread which lives as long as this process does.

INVARIANT  whoever's thread asks for a start, what was started lives until it is ended, or until this process ends.
PREVENTS   a node that the kernel kills because the thread of the schedule that restarted it is through: the parent that
           PR_SET_PDEATHSIG means is a thread.
PROVED BY  tests/chaos/test_faults_processes.py::test_what_a_thread_starts_outlives_that_thread
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from fencepost.node.cli.children import die_with_parent

from ..harness.processes import DidNotStart
from .proxy import Door, Way

T = TypeVar("T")
# Its one thread ends when this process does.
_STARTER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


def lasting(start: Callable[[], T]) -> T:
    """Call it on that thread."""
    return _STARTER.submit(start).result()


class ProxyProcess:
    """`proxy.py` as a process, so that it goes on when this one is busy."""

    def __init__(self, doors: Sequence[Door], log: Path) -> None:
        self._command = [
            sys.executable,
            "-m",
            "fencepost.chaos.faults.proxy",
            json.dumps([asdict(door) for door in doors]),
        ]
        self._log = log
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        self._child = lasting(self._start)
        self.tell()

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - only prctl runs in there
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._child is not None, "never started"
        return self._child.pid

    def tell(
        self,
        *,
        pids: Mapping[int, int] | None = None,
        cut: Sequence[Way] | None = None,
        slow: Mapping[Way, float] | None = None,
    ) -> None:
        """See `Proxies.tell`; what is told holds when this returns."""
        told: dict[str, Any] = {}
        if pids is not None:
            told["pids"] = pids
        if cut is not None:
            told["cut"] = list(cut)
        if slow is not None:
            told["slow"] = [[*way, seconds] for way, seconds in slow.items()]
        child = self._child
        if child is None:
            return
        assert child.stdin is not None and child.stdout is not None
        with self._lock:
            try:
                child.stdin.write(json.dumps(told) + "\n")
                child.stdin.flush()
                answer = child.stdout.readline()
            except (BrokenPipeError, ValueError):
                answer = ""
        if answer != "done\n":
            said = self._log.read_text()[-2_000:]
            raise DidNotStart(f"the proxy before the nodes has ended: {said}")

    def close(self) -> None:
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child = None
