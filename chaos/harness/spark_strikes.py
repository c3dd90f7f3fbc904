"""The data source of the kill runs: the real one, which at one place of one batch is struck, once.

What is struck dies by SIGKILL, as it would in the field: the task's Python, its executor, the driver. `spark_points.py` has
the places. A file says that the blow has fallen, so that the run after it goes through.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Never

import pyarrow as pa
from fencepost.clients.spark.sink_names import Place
from fencepost.clients.spark.source import FencepostDataSource
from fencepost.clients.spark.writers import BatchWriter, Driver, StreamWriter, TaskWrote
from fencepost.clients.transactional import Decision, MemberWrote, TransactionGroup
from pyspark import TaskContext

from .spark_blows import (
    become_an_orphan,
    kill_executor,
    kill_host,
    kill_self,
    kill_when_sent,
    sleep_with_executor,
)
from .spark_points import (
    ALL_ATTEMPTS_FAIL,
    ASLEEP,
    BESIDE,
    BROKER_POINTS,
    DECIDED,
    DONE_ELSEWHERE,
    NOTE_LOST,
    RAN_AGAIN,
    SECOND_WORKS,
    SENT,
    SLEEPS,
    WENT_ON,
)

OPTION: Final = "strike"
NAME: Final = "fencepost-struck"
DRIVER_FILE: Final = "driver.pids"  # the JVM's and its Python's
TWIN_SLEEPS_S: Final = 20.0
ANSWERED_S: Final = (0.0, 0.01, 0.2)  # most likely not yet decided; perhaps; answered, and not read
WAITS_S: Final = 120.0  # for a second driver, on a machine that has other things to do
FAILURES_MAX: Final = 4  # of a task, before Spark gives up the batch


class Strike(NamedTuple):
    at: str
    batch: int
    partition: int
    folder: str

    @classmethod
    def read(cls, text: str) -> "Strike | None":
        """`driver-sent,2,0,/folder`, or nothing."""
        if not text:
            return None
        at, batch, partition, folder = text.split(",", 3)
        return cls(at, int(batch), int(partition), folder)

    def __str__(self) -> str:
        return ",".join(map(str, self))

    def falls(self, at: str, times: int = 1) -> bool:
        """Whether this is the place, and the blow has not fallen so often yet."""
        if at != self.at:
            return False
        return any(self.is_first(f"struck-{number}") for number in range(times))

    def is_first(self, what: str) -> bool:
        """Whether nobody has asked this before."""
        try:
            (Path(self.folder) / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def note(self, what: str, said: str = "") -> None:
        (Path(self.folder) / what).write_text(said)

    def has(self, what: str) -> bool:
        return (Path(self.folder) / what).exists()

    def wait_for(self, what: str) -> None:
        """Not for ever: the run that lacks a mark is UNKNOWN."""
        deadline = time.monotonic() + WAITS_S
        while not self.has(what) and time.monotonic() < deadline:
            time.sleep(0.02)

    def kill_driver(self) -> Never:
        for pid in (Path(self.folder) / DRIVER_FILE).read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        os._exit(1)


class _InTask(NamedTuple):
    """The blows that fall in a task."""

    strike: Strike | None

    def _is_here(self, batch: int | None) -> bool:
        strike = self.strike
        return strike is not None and (strike.batch, strike.partition) == (
            _batch(batch),
            _task().partitionId(),
        )

    def starts(self, batch: int | None) -> None:
        strike = self.strike
        if strike is None:
            return
        if strike.at == "stage-runs-again" and strike.batch == _batch(batch):
            self._count_stage(strike)
        if strike.has(NOTE_LOST):
            strike.falls("commit-note-lost")  # a mark: it has begun again
        if not self._is_here(batch):
            return
        if strike.at in BROKER_POINTS:
            strike.falls(strike.at)  # a mark: the kill runs strike
        if strike.at == BESIDE:
            strike.note(SECOND_WORKS)
        if strike.falls("executor-oversleeps"):
            sleep_with_executor(Path(strike.folder))
        if strike.falls("task-starts"):
            raise RuntimeError("struck: task-starts")
        if strike.falls("driver-starts"):
            strike.kill_driver()

    def _count_stage(self, strike: Strike) -> None:
        """Attempts of a task have numbers of their own, unless their stage is run again: then they count from 0."""
        task = _task()
        if not strike.is_first(f"ran-{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}"):
            strike.note(RAN_AGAIN)

    def rows(
        self, batches: Iterator[pa.RecordBatch], batch: int | None
    ) -> Iterator[pa.RecordBatch]:
        """The blow falls after half of the first batch's rows."""
        is_here = self._is_here(batch)
        for each in batches:
            half = each.num_rows // 2
            yield each.slice(0, half)
            if is_here:
                time.sleep(0.1)  # some of them are on their way
                self._blow("halfway")
            yield each.slice(half)

    def wrote(self, batch: int | None) -> None:
        strike = self.strike
        if strike is None or not self._is_here(batch):
            return
        if strike.at in SLEEPS and strike.has(ASLEEP) and not self._is_who_slept(strike):
            strike.note(DONE_ELSEWHERE)
        self._blow("wrote")

    def ended(self) -> None:
        """Whatever its writing came to."""
        strike = self.strike
        if strike is not None and strike.has(ASLEEP) and self._is_who_slept(strike):
            strike.note(WENT_ON)

    def _is_who_slept(self, strike: Strike) -> bool:
        return (Path(strike.folder) / ASLEEP).read_text().split()[0] == str(os.getpid())

    def _blow(self, when: str) -> None:
        strike = self.strike
        assert strike is not None
        if strike.falls(f"task-{when}"):
            raise RuntimeError(f"struck: task-{when}")
        if when == "wrote":
            self._blow_to_all(strike)
        if strike.falls(f"worker-{when}"):
            kill_self()
        if strike.falls(f"executor-{when}"):
            kill_executor()
        if strike.falls(f"host-{when}"):
            kill_host()
        if strike.falls(f"driver-{when}"):
            strike.kill_driver()
        # As good a seed as any. Copies wait, too: they would win.
        if strike.at == "second-driver" and when == ("halfway", "wrote")[strike.partition % 2]:
            strike.falls("second-driver")
            strike.wait_for(SECOND_WORKS)
        if when == "halfway":
            if strike.falls("executor-sleeps"):
                sleep_with_executor(Path(strike.folder))
            if strike.falls("executor-orphans"):
                strike.note(ASLEEP, f"{os.getpid()} 0")
                become_an_orphan()

    def _blow_to_all(self, strike: Strike) -> None:
        if strike.at in ALL_ATTEMPTS_FAIL and strike.falls(strike.at, FAILURES_MAX):
            raise RuntimeError(f"struck: {strike.at}")
        if strike.falls("stage-runs-again"):
            kill_executor()
        if strike.at == "driver-fences" and strike.is_first("left-behind"):
            kill_self()  # its transaction stays open, for the driver to end
        if strike.falls("twin-sleeps"):
            time.sleep(TWIN_SLEEPS_S)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _batch(number: int | None) -> int:
    """`number`, or of a stream what Spark says."""
    told = _task().getLocalProperty("streaming.sql.batchId")
    return number if number is not None else int(told or 0)


class _StruckGroup(TransactionGroup):
    strike: Strike | None = None
    batch = -1
    has_decided = False

    def commit(self, number: int, members: Any, note: str = "") -> Decision:
        strike = self.strike if self.strike is not None and self.strike.batch == number else None
        if strike is not None and strike.falls("driver-sent"):
            kill_when_sent(self._sent)
        decision = super().commit(number, members, note)
        if strike is not None and strike.falls("driver-decided"):
            strike.kill_driver()
        self.has_decided = True
        return decision

    def _sent(self) -> Never:
        strike = self.strike
        assert strike is not None
        strike.note(SENT)
        time.sleep(ANSWERED_S[strike.partition % len(ANSWERED_S)])  # as good a seed as any
        strike.kill_driver()

    def open_members(self) -> dict[str, MemberWrote]:
        found = super().open_members()
        strike = self.strike if self.has_decided else None
        if strike is not None and strike.batch == self.batch and strike.falls("driver-listed"):
            strike.kill_driver()
        return found


class _StruckDriver(Driver):
    strike: Strike | None = None

    def group(self, place: Place) -> TransactionGroup:
        real = super().group(place)
        group = _StruckGroup(real.name, real._admin)
        group.strike, group.batch = self.strike, place.number
        return group

    def _fence(self, group: str, members: Sequence[str]) -> None:
        """The blow falls before the first of them, or after it."""
        strike = self.strike
        if strike is not None and members and strike.falls("driver-fences"):
            super()._fence(group, members[: strike.partition % 2])
            strike.kill_driver()
        super()._fence(group, members)

    def commit(self, messages: Sequence[Any], number: int | None) -> None:
        here = next((each.place.number for each in messages if each is not None), -1)
        strike = self.strike if self.strike is not None and self.strike.batch == here else None
        if strike is not None and strike.falls("driver-commits"):
            strike.kill_driver()
        super().commit(messages, number)
        if strike is None:
            return
        if strike.falls("driver-committed"):
            strike.kill_driver()
        if strike.at in SLEEPS:
            strike.note(DECIDED)

    def abort(
        self, messages: Sequence[Any], number: int | None, place: Place | None = None
    ) -> None:
        strike = self.strike
        if strike is not None and strike.at == "driver-aborts" and strike.is_first("aborts"):
            strike.kill_driver()
        super().abort(messages, number, place)
        if strike is not None and strike.at == "driver-aborted" and strike.is_first("aborted"):
            strike.kill_driver()


class _StruckStreamWriter(StreamWriter):
    strike: Strike | None = None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        blows = _InTask(self.strike)
        blows.starts(None)
        try:
            wrote = super().write(blows.rows(iterator, None))
        finally:
            blows.ended()
        blows.wrote(None)
        return wrote

    def driver(self) -> Driver:
        driver = _StruckDriver(self._options)
        driver.strike = self.strike
        return driver


class _StruckBatchWriter(BatchWriter):
    strike: Strike | None = None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        blows, number = _InTask(self.strike), self._options.number
        blows.starts(number)
        try:
            wrote = super().write(blows.rows(iterator, number))
        finally:
            blows.ended()
        blows.wrote(number)
        return wrote

    def driver(self) -> Driver:
        driver = _StruckDriver(self._options)
        driver.strike = self.strike
        return driver


class StruckDataSource(FencepostDataSource):
    """`.option("strike", "driver-sent,2,0,/folder")`."""

    def __init__(self, options: Any) -> None:
        super().__init__({key: options[key] for key in options if key != OPTION})
        self.strike = Strike.read(options.get(OPTION, ""))

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        plain = super().streamWriter(schema, overwrite)
        assert isinstance(plain, StreamWriter)
        writer = _StruckStreamWriter(plain._options)
        writer.strike = self.strike
        return writer

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        plain = super().writer(schema, overwrite)
        assert isinstance(plain, BatchWriter)
        writer = _StruckBatchWriter(plain._options)
        writer.strike = self.strike
        return writer
