"""Drivers of Spark as processes: one that does a job after the other until it dies, and one in reserve.

INVARIANT  what a driver started (JVMs, executors, their Pythons) is gone when its block ends, however it died.
PREVENTS   executors of a killed driver that go on writing into the next run, or hold the machine's memory.
PROVED BY  tests/spark/test_spark_kill_runs.py::test_nothing_of_a_driver_outlives_its_block
"""

import os
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .processes import DidNotStart, Process
from .spark_settings import DONE, ENDED, READY, Job, job_file, scratch

START_S: Final = 180.0  # on a machine that has other things to do
POLL_S: Final = 0.02
GONE_S: Final = 20.0


class JobStuck(Exception):
    """It does not end; what its driver said last."""


class Driver:
    def __init__(self, command: list[str], folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.jobs = 0
        self._is_ready = False
        self.process = Process(
            [*command, str(folder)], log=folder / "log", environment=scratch(folder / "scratch")
        )
        self.process.start()
        self._session = self.process.pid  # it leads one of its own

    @property
    def alive(self) -> bool:
        return self.process.alive

    def do(self, job: Job, wait_s: float) -> str | None:
        """What it said at the job's end; None when it died before. JobStuck when it does neither."""
        if not self._is_ready:
            self.process.wait_line(READY, START_S)
            self._is_ready = True
        number = self.jobs
        self.jobs += 1
        job.write(job_file(self.folder, number))
        start, deadline = f"{ENDED}{number} ", time.monotonic() + wait_s
        while True:
            is_alive = self.alive
            for line in self.process.said().splitlines(keepends=True):
                if line.startswith(start) and line.endswith("\n"):
                    return line.removeprefix(start).strip()
            if not is_alive:
                return None
            if time.monotonic() > deadline:
                raise JobStuck(f"the job does not end; {self.process.log} ends:\n{self.tail()}")
            time.sleep(POLL_S)

    def tail(self) -> str:
        return self.process.said()[-3000:]

    def end(self) -> None:
        """With all that it started."""
        self.process.kill()
        end_session(self._session)


class Drivers:
    """`with Drivers(command, folder) as drivers`: the jobs of all runs go to one driver, and after its death to another."""

    def __init__(self, command: Callable[[], list[str]], folder: Path) -> None:
        self._command, self._folder = command, folder
        self._numbers = count()
        self._now: Driver | None = None
        self._reserve: Driver | None = None
        self._dead: list[Driver] = []

    def have_a_reserve(self) -> None:
        """Because the next job's driver is going to die: it starts meanwhile."""
        self._have_one()
        if self._reserve is None:
            self._reserve = self._start()

    def second(self) -> Driver:
        """One that is to work beside that of the next job. Whoever asks for it ends it."""
        self.have_a_reserve()
        found, self._reserve = self._reserve, None
        assert found is not None
        return found

    def do(self, job: Job, wait_s: float) -> str | None:
        return self._have_one().do(job, wait_s)

    def _have_one(self) -> Driver:
        if self._now is not None and not self._now.alive:
            self._dead.append(self._now)
            self._now = None
        if self._now is None:
            self._now, self._reserve = self._reserve or self._start(), None
        return self._now

    def bury(self) -> None:
        """What a driver that died has left is killed too, once its run is over."""
        while self._dead:
            self._dead.pop().end()

    def throw_away(self) -> None:
        """After a job that went wrong nobody knows what state the session is in."""
        if self._now is not None:
            self._dead.append(self._now)
            self._now = None
        self.bury()

    def log(self) -> str:
        return "" if self._now is None else self._now.tail()

    def _start(self) -> Driver:
        return Driver(self._command(), self._folder / f"driver-{next(self._numbers)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reserve is not None:
            self._dead.append(self._reserve)
            self._reserve = None
        self.throw_away()


def is_done(said: str | None) -> bool:
    return said == DONE


def end_session(session: int) -> None:
    """SIGKILL for all processes of it, until none is left."""
    deadline = time.monotonic() + GONE_S
    while left := _of_session(session):
        for pid in left:
            _kill(pid)
        if time.monotonic() > deadline:
            raise DidNotStart(f"processes {left} outlive SIGKILL")
        time.sleep(POLL_S)


def _of_session(session: int) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            state, in_session = fields[0], int(fields[3])
            if in_session == session and state != "Z":
                found.append(int(each.name))
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
