"""The client processes of a run: started, crashed on purpose, started again with other ids; what they saw becomes the history.

INVARIANT  a client that ended, by itself or by us, is replaced by another with a new number of life, for as long as the run goes.
PREVENTS   a run that goes quiet because its clients have died one after the other, and is valid for it.
PROVED BY  tests/chaos/test_queue_clients.py::test_a_client_that_was_killed_is_followed_by_another_one
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..checkers.txn_history import Txn, to_line
from ..harness.processes import Process
from ..workloads.txn_process import HUNG
from .folder import HISTORY, RunFolder
from .notes import Notes

STOPPED: Final = (0, -signal.SIGTERM, -signal.SIGKILL, HUNG)
STOP_S: Final = 30.0  # for an operation that is under way; who takes longer is killed
NEVER: Final = float("inf")
SAID_CHARACTERS: Final = 1_500


@dataclass(slots=True)
class Client:
    """One place, and the process that has it now."""

    slot: int
    life: int = 0
    process: Process | None = None
    notes: Notes | None = None
    crash_at_s: float = 0.0
    paused: bool = False


@dataclass(slots=True)
class Known:
    """What the history has said so far, as far as others need it."""

    keys: dict[str, int] = field(default_factory=dict)  # key -> one above the highest known offset
    groups: dict[str, set[str]] = field(default_factory=dict)  # group -> keys
    operations: Counter[str] = field(
        default_factory=Counter
    )  # by type, of those with sends or polls
    acknowledged: int = 0  # records
    acknowledged_bytes: int = 0

    def see(self, op: Txn) -> None:
        if op.sends or op.polls or op.f == "txn":
            self.operations[op.type] += 1
        for sent in op.sends:
            at = -1 if sent.offset is None else sent.offset
            # An aborted record is not there to be read; that of an unknown one may not be.
            self.keys[sent.key] = max(self.keys.get(sent.key, 0), at + 1 if op.type == "ok" else 0)
            if op.type == "ok":
                self.acknowledged += 1
                self.acknowledged_bytes += len(f"{op.number}/{sent.value}/{sent.extra}")
        for polled in op.polls:
            self.keys[polled.key] = max(self.keys.get(polled.key, 0), polled.offset + 1)
        for place in op.offsets:
            group, _, key = place.partition("|")
            self.groups.setdefault(group, set()).add(key)


class Clients:
    """Call `tick` often, from the thread that lives longest: it reads, replaces, crashes."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        count: int,
        module: str,
        words: Callable[[int, list[str]], list[str]],
        seed: int,
        life_s: float,
    ) -> None:
        """`words` are those of the process in a place, when these keys are known."""
        self.folder = folder
        self.known = Known()
        self.crashes = 0
        self.ended: list[str] = []  # who ended by itself, and what it said
        self.watching: list[Callable[[Txn], None]] = []  # who else sees the history grow
        self.began_s = time.monotonic()
        self._module = module
        self._words = words
        self._life_s = life_s  # on average; 0: nobody crashes
        self._rng = random.Random(f"{seed}/clients")
        self._clients = [Client(slot) for slot in range(count)]
        self._notes_folder = folder.path / "clients"
        self._notes_folder.mkdir(exist_ok=True)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def start(self) -> None:
        for client in self._clients:
            self._start(client)

    def _start(self, client: Client) -> None:
        client.life += 1
        file = self._notes_folder / f"client-{client.slot}.{client.life}.jsonl"
        client.notes = Notes(file, self.began_s)
        where = ["--slot", str(client.slot), "--life", str(client.life), "--notes", str(file)]
        words = self._words(client.slot, list(self.known.keys))
        command = [sys.executable, "-m", self._module, *words, *where]
        client.process = Process(command, log=file.with_suffix(".log"))
        client.process.start()
        client.crash_at_s = NEVER

    def tick(self) -> None:
        found: list[Txn] = []
        gone: list[Client] = []
        for client in self._clients:
            assert client.process is not None and client.notes is not None
            if not client.process.alive:
                self._account(client)
                found += client.notes.left_open(time.monotonic())
                gone.append(client)
            elif self.now_s > client.crash_at_s and not client.paused:
                client.process.kill()
                self.crashes += 1
                found += self._crashed(client)
                gone.append(client)
            else:
                new = client.notes.ended()
                if new and self._life_s and client.crash_at_s == NEVER:
                    # From now on: where a machine is busy, a process takes seconds to be there.
                    client.crash_at_s = self.now_s + self._rng.uniform(0.5, 1.5) * self._life_s
                found += new
        self.write(found)
        for client in gone:
            self._start(client)

    def _crashed(self, client: Client) -> list[Txn]:
        assert client.notes is not None
        found = client.notes.left_open(time.monotonic())
        if found:
            last, now_s = found[-1], self.now_s
            found.append(
                Txn("crash", "info", last.process, began_s=now_s, ended_s=now_s, why="killed")
            )
        return found

    def _account(self, client: Client) -> None:
        assert client.process is not None
        if client.process.exit_code not in STOPPED:
            said = client.process.said()[-SAID_CHARACTERS:]
            self.ended.append(f"client {client.slot} ended with {client.process.exit_code}: {said}")

    def write(self, found: list[Txn]) -> None:
        """In the order of ends: whoever reads the history meets the acknowledgement of a process before its next."""
        found.sort(key=lambda op: op.ended_s)
        for op in found:
            self.known.see(op)
            for see in self.watching:
                see(op)
        self.folder.append_text(HISTORY, map(to_line, found))

    # -- what faults do to them ------------------------------------------------------------------

    def pause(self, rng: random.Random) -> str:
        """One of them, whatever it is at."""
        client = rng.choice([each for each in self._clients if not each.paused])
        assert client.process is not None
        os.kill(client.process.pid, signal.SIGSTOP)
        client.paused = True
        return f"client {client.slot}"

    def resume(self) -> None:
        for client in self._clients:
            if client.paused and client.process is not None:
                os.kill(client.process.pid, signal.SIGCONT)
                client.paused = False

    # -- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """All end what they are at; who does not in time is killed, and what it was at is unknown."""
        self.resume()
        there = [each for each in self._clients if each.process is not None]
        for client in there:
            if client.process is not None and client.process.alive:
                os.kill(client.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        found: list[Txn] = []
        for client in there:
            assert client.process is not None and client.notes is not None
            client.process.stop(max(0.1, deadline - time.monotonic()))
            self._account(client)
            found += client.notes.left_open(time.monotonic())
        self.write(found)

    def kill(self) -> None:
        for client in self._clients:
            if client.process is not None:
                client.process.kill()
