"""The worker processes of a run over transactions: started, killed, paused, doubled; and what they all wrote down.

INVARIANT  of each transaction that a worker began the history has one line: the last that was written of it.
PREVENTS   a transaction of a killed worker that nobody accounts for.
PROVED BY  tests/chaos/test_txn_worker.py::test_of_a_worker_that_was_killed_the_last_line_of_a_transaction_counts
"""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..checkers.txn_history import Txn, Txns, from_lines
from ..workloads.heartbeat import HANGS
from ..workloads.txn_process import SLOTS_MAX
from .loop_frame import NoProgress, wait_for_progress
from .processes import Process

PROGRESS_S = 60.0  # for every worker to commit again; a transaction may have to time out first
SAID_CHARACTERS = 1_500
STOP_S = 100.0  # with the transaction that is under way, however patient
STOPPED = (0, -signal.SIGTERM, *HANGS)  # the second of one that had only just been started
MODULE = "fencepost.chaos.workloads.txn_worker"
MEMBER = "subscriber"  # its group gives it what it consumes


@dataclass(slots=True)
class Worker:
    """One place of work, and the process that has it now."""

    role: str
    slot: int
    life: int = 0
    process: Process | None = None
    paused: bool = False

    @property
    def transactional_id(self) -> str:
        return f"{self.role}-{self.slot}"


@dataclass(slots=True)
class Workers:
    """Call `start` for each; `notes` are one file for each process that ever was."""

    folder: Path
    flags: list[str]
    all: list[Worker] = field(default_factory=list)
    ok: Counter[int] = field(default_factory=Counter)  # slot -> transactions committed
    consumed: int = 0  # of these by members of the group, with positions in them
    ended: list[str] = field(default_factory=list)  # who ended by itself, and what it said
    hung: int = 0  # clients whose library did not come back (`heartbeat.py`)
    hung_said: str = ""  # by the last of them
    topics: tuple[str, ...] = ("bank", "list")
    _files: list[Path] = field(default_factory=list)
    _read: dict[Path, int] = field(default_factory=dict)

    def notes(self) -> list[Path]:
        """Of every process so far."""
        return list(self._files)

    def hire(self, role: str, count: int) -> None:
        for _ in range(count):
            worker = Worker(role, len(self.all))
            assert worker.slot < SLOTS_MAX - 1, "slots are used up; the last is a twin's"
            self.all.append(worker)
            self.start(worker)

    def _launch(self, role: str, slot: int, life: int, transactional_id: str) -> Process:
        notes = self.folder / f"{role}-{slot}.{life}.jsonl"
        self._files.append(notes)
        command = [sys.executable, "-m", MODULE, *self.flags, "--role", role, "--slot", str(slot)]
        command += ["--life", str(life), "--notes", str(notes)]
        command += ["--transactional-id", transactional_id]
        process = Process(command, log=notes.with_suffix(".log"))
        process.start()
        return process

    def start(self, worker: Worker) -> None:
        worker.life += 1
        worker.process = self._launch(
            worker.role, worker.slot, worker.life, worker.transactional_id
        )

    def kill(self, worker: Worker) -> None:
        assert worker.process is not None
        worker.process.kill()

    def pause(self, worker: Worker) -> None:
        assert worker.process is not None
        os.kill(worker.process.pid, signal.SIGSTOP)
        worker.paused = True

    def resume(self, worker: Worker) -> None:
        assert worker.process is not None
        os.kill(worker.process.pid, signal.SIGCONT)
        worker.paused = False

    def twin(self, worker: Worker, life: int) -> Process:
        """Another with the same transactional id: each that starts fences the other."""
        return self._launch(worker.role, SLOTS_MAX - 1, life, worker.transactional_id)

    # -- progress ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what is new, and see who is gone."""
        for file in self._files:
            at = self._read.get(file, 0)
            if not file.exists() or file.stat().st_size == at:
                continue
            with file.open("rb") as source:
                source.seek(at)
                data = source.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[file] = at + len(whole)
            slot = int(file.stem.partition("-")[2].partition(".")[0])
            served = [
                line
                for line in whole.splitlines()
                if b'"type": "ok"' in line and b'"f": "assign"' not in line and is_served(line)
            ]
            self.ok[slot] += len(served)
            if file.stem.startswith(f"{MEMBER}-"):
                self.consumed += sum(b'"offsets"' in line for line in served)
        for worker in self.all:
            assert worker.process is not None
            if not worker.process.alive:
                code, said = worker.process.exit_code, worker.process.said()[-SAID_CHARACTERS:]
                if code in HANGS:
                    self.hung += 1
                    self.hung_said = said
                else:
                    self.ended.append(f"{worker.transactional_id} ended with {code}: {said}")
                self.start(worker)

    def served(self) -> int:
        self.look()
        return sum(self.ok.values())

    def progress(self) -> float:
        self.look()
        before, consumed, hung = dict(self.ok), self.consumed, self.hung
        missing: list[str] = []

        def all_have() -> bool:
            self.look()
            missing[:] = [
                each.transactional_id
                for each in self.all
                if not each.paused and self.ok[each.slot] == before.get(each.slot, 0)
            ]
            # Members to whom their group gives nothing go on to send.
            has_members = any(each.role == MEMBER and not each.paused for each in self.all)
            if has_members and self.consumed == consumed:
                missing.append("the group, of which no member has consumed anything")
            return not missing

        try:
            return wait_for_progress("all workers have committed again", all_have, PROGRESS_S)
        except NoProgress as error:
            why = f"{error}; not {missing}. {self.ended[-1:]}"
            if self.hung > hung:  # clients that did not come back: whose fault that is nobody knows
                raise TimeoutError(f"{why} Hung: {self.hung_said}") from error
            raise NoProgress(why) from error

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """All end what they are at."""
        for worker in self.all:
            if worker.paused:
                self.resume(worker)
            if worker.process is not None and worker.process.alive:
                os.kill(worker.process.pid, signal.SIGTERM)
        for worker in self.all:
            assert worker.process is not None
            if (code := worker.process.stop(STOP_S)) not in STOPPED:
                said = worker.process.said()[-SAID_CHARACTERS:]
                self.ended.append(f"{worker.transactional_id} was stopped with {code}: {said}")

    def kill_all(self) -> None:
        for worker in self.all:
            if worker.process is not None:
                worker.process.kill()

    def history(self) -> Txns:
        return merged([_lines_of(file) for file in self._files if file.exists()])


def _lines_of(file: Path) -> Iterator[str]:
    """Without the one in the middle of which its writer was killed."""
    text = file.read_text()
    return iter(text[: text.rfind("\n") + 1].splitlines())


def merged(files: Iterable[Iterable[str]]) -> Txns:
    """One history, in the order of ends. What has no end may have ended any time until now."""
    found: list[Txn] = []
    for lines in files:
        of_file: dict[int, Txn] = {}
        for op in from_lines(lines):
            if op.f == "txn":
                of_file.pop(op.number, None)
                of_file[op.number] = op
            else:
                found.append(op)
        found += of_file.values()
    now = time.monotonic()
    for op in found:
        op.ended_s = op.ended_s or now
    return sorted(found, key=lambda op: op.ended_s)


def is_served(line: bytes) -> bool:
    """An auditor that was shown nothing says so; that is no progress."""
    return b'"f": "snapshot"' not in line or b'"polls"' in line
