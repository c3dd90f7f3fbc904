"""What happens to a job of the kill runs from outside of it: a node dies, a stopped executor goes on, a second driver begins.

Each is a thread beside the job. `has_ended` is called when the job is done, however that went: nobody stays stopped, and no
second driver at work.
"""

import os
import random
import signal
import threading
import time
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Final

from .asking import NobodyAnswers
from .local_cluster import LocalCluster
from .processes import DidNotStart
from .spark_drivers import Driver, Drivers, JobStuck
from .spark_points import (
    ASLEEP,
    BESIDE,
    BROKER_DEAD,
    BROKER_POINTS,
    DECIDED,
    DONE_ELSEWHERE,
    GIVEN_UP,
    SLEEPS,
    STRUCK,
    WENT_ON,
)
from .spark_run import Run
from .spark_settings import BATCH, Job

POLL_S: Final = 0.02
GIVEN_UP_S: Final = 180.0  # a driver's patience (`spark_job.py`), and that of a busy machine
GOES_ON_S: Final = 60.0
SECOND_S: Final = 400.0
SIGNALS: Final = ("SigPnd:", "ShdPnd:")


class Beside(threading.Thread):
    """`start`, then the job, then `has_ended`. `trouble` says why nothing can be said."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name=name, daemon=True)
        self.folder = folder
        self.over = threading.Event()
        self.trouble = ""

    def run(self) -> None:
        try:
            self.happen()
        except (DidNotStart, TimeoutError, NobodyAnswers, JobStuck) as trouble:
            self.trouble = str(trouble)

    @abstractmethod
    def happen(self) -> None: ...

    def until_there(self, mark: str) -> bool:
        """False when the job was over before."""
        while not (self.folder / mark).exists():
            if self.over.wait(POLL_S):
                return (self.folder / mark).exists()
        return True

    def has_ended(self) -> None:
        self.over.set()
        self.join()


class BrokerDies(Beside):
    """One of them, once, somewhere in the middle of a job; it comes back."""

    def __init__(self, cluster: LocalCluster, run: Run, job: Job) -> None:
        super().__init__("a broker dies", Path(job.folder))
        self._cluster, self._run, self._job = cluster, run, job
        self._rng = random.Random(run.seed)

    def happen(self) -> None:
        """Once the task that the seed names has begun."""
        if not self.until_there(STRUCK) or self.over.wait(self._rng.uniform(0.0, 1.0)):
            return
        node = self._rng.choice(self._cluster.awake)
        if self._run.point == "coordinator-dies":
            known = self._cluster.coordinator_of(f"{self._group()}::any")
            node = known if known > 0 else node
        self._cluster.kill(node)
        (self.folder / BROKER_DEAD).touch()
        time.sleep(self._rng.uniform(0.2, 1.5))
        self._cluster.start_again(node)

    def _group(self) -> str:
        return self._job.out if self._run.sink == BATCH else group_of(self.folder)


class SleeperWakes(Beside):
    """A task's Python and its executor stand still (SIGSTOP, as in a machine that was paused), and then go on.

    1. The driver hears nothing of the executor, has another do the task, and Spark's worker end the executor (SIGTERM).
    2. A process that is stopped takes no SIGTERM: it stays pending, until the worker sends SIGKILL ten seconds later.
    3. So who sees it pending, or the executor gone, knows that the driver has given it up.
    """

    def __init__(self, run: Run, job: Job) -> None:
        super().__init__("a sleeper wakes", Path(job.folder))
        self._awaited = DECIDED if run.point == "executor-oversleeps" else DONE_ELSEWHERE

    def happen(self) -> None:
        if not self.until_there(ASLEEP):
            return
        python, java = map(int, (self.folder / ASLEEP).read_text().split())
        try:
            self._wait(
                "its driver does not give an executor up",
                GIVEN_UP_S,
                lambda: (self.folder / self._awaited).exists() and is_given_up(java),
            )
            (self.folder / GIVEN_UP).touch()
        finally:
            for pid in (python, java):
                go_on(pid)
        self._wait(
            "a task that went on does not end",
            GOES_ON_S,
            lambda: (self.folder / WENT_ON).exists() or is_gone(python),
        )

    def _wait(self, what: str, seconds: float, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} in {seconds:g} s")
            time.sleep(POLL_S)


class SecondDriver(Beside):
    """Another driver does the same job: the same checkpoint, the same group, the same numbers."""

    def __init__(self, driver: Driver, job: Job) -> None:
        super().__init__("a second driver", Path(job.folder))
        self._driver = driver
        self._job = replace(job, strike=f"{BESIDE},{job.strike.partition(',')[2]}")
        self.said: str | None = None

    def happen(self) -> None:
        try:
            if self.until_there(STRUCK):
                self.said = self._driver.do(self._job, SECOND_S)
        finally:
            self._driver.end()


def beside(cluster: LocalCluster, drivers: Drivers, run: Run, job: Job) -> Beside | None:
    if run.point in BROKER_POINTS:
        return BrokerDies(cluster, run, job)
    if run.point in SLEEPS:
        return SleeperWakes(run, job)
    if run.point == "second-driver":
        return SecondDriver(drivers.second(), job)
    return None


def group_of(folder: Path) -> str:
    """A stream's, which has its checkpoint there."""
    metadata = folder / "checkpoint" / "metadata"
    found = metadata.read_text().partition('"id":"')[2].partition('"')[0]
    return f"spark-{found}"


def is_given_up(pid: int) -> bool:
    """Gone, or asked to go."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(SIGNALS)]
    asked = any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)
    return asked or "\nState:\tZ" in status


def is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def go_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return
