"""What is done to processes at the points: by a task, to itself and to those that it works for; by a driver, to itself. SIGKILL and SIGSTOP alone."""

import http.client
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Never

from .spark_points import ASLEEP

WORKER_OF_SPARK: Final = "org.apache.spark.deploy.worker.Worker"


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> Never:
    os.kill(javas_above()[0], signal.SIGKILL)
    os._exit(1)


def kill_host() -> Never:
    executor, worker = javas_above()[:2]
    assert WORKER_OF_SPARK.encode() in Path(f"/proc/{worker}/cmdline").read_bytes()
    os.kill(worker, signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    os._exit(1)


def become_an_orphan() -> None:
    """Of an executor and its Pythons' daemon this task's Python alone is left, and has the rest of its rows or has not.

    The daemon dies first: it would end its Pythons, once it sees that the executor is gone.
    """
    java, daemon = javas_above()[0], os.getppid()
    if daemon != java:
        os.kill(daemon, signal.SIGKILL)
    os.kill(java, signal.SIGKILL)


def sleep_with_executor(folder: Path) -> None:
    """Until somebody has both go on (`spark_faults.py`). Nor does their daemon end this Python then: it would, by a SIGHUP, as
    soon as the executor has ended."""
    java = javas_above()[0]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    half = folder / f"{ASLEEP}.half"
    half.write_text(f"{os.getpid()} {java}")
    half.rename(folder / ASLEEP)
    os.kill(java, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_when_sent(kill: Callable[[], Never]) -> None:
    """Whoever asks to have something done over HTTP from now on is killed when its request is in the kernel's hands, as a
    whole, and before it reads the answer."""
    right = http.client.HTTPConnection.request

    def request(self: Any, method: str, *given: Any, **named: Any) -> None:
        right(self, method, *given, **named)
        if method == "POST":
            kill()

    http.client.HTTPConnection.request = request  # type: ignore[method-assign]


def javas_above() -> list[int]:
    """The JVMs that this process works for: its executor, and who started that."""
    found = []
    pid = os.getppid()
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        if status.startswith("Name:\tjava"):
            found.append(pid)
        pid = int(status.partition("PPid:")[2].split()[0])
    return found
