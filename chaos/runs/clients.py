"""The client processes of a run: started, crashed on purpose, started again with other ids; what they saw becomes the history.

INVARIANT  a client that ended, by itself or by us, is replaced by another with a new number of life, for as long as the run goes.
PREVENTS   a run that goes quiet because its clients have died one after the other, and is valid for it.
PROVED BY  tests/chaos/test_queue_clients.py::test_a_client_that_was_killed_is_followed_by_another_one
"""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..checkers.txn_history import Txn, to_line
from ..faults.lasting import lasting
from ..harness.processes import Process
from ..workloads.heartbeat import HANGS
from ..workloads.txn_process import SLOTS_MAX
from .folder import HISTORY, RunFolder
from .notes import Notes

STOPPED: Final = (0, -signal.SIGTERM)
STOP_S: Final = 30.0  # for an operation that is under way; who takes longer is killed
NEVER: Final = float("inf")
SAID_CHARACTERS: Final = 1_500
TWIN_SLOT: Final = SLOTS_MAX - 1  # its numbers are nobody else's


@dataclass(slots=True)
class Client:
    """One place, and the process that has it now."""

    slot: int
    life: int = 0
    process: Process | None = None
    notes: Notes | None = None
    crash_at_s: float = 0.0
    paused: bool = False
    leaving: bool = False  # nobody follows it
    is_killed: bool = False  # by us; else it was the kernel, for want of memory
    did: bool = False  # a process before this one came to the end of something
    name: str = ""  # of the process that transacts in it, once it has said so
    transacted_s: float = 0.0  # when it was last at it

    def __str__(self) -> str:
        return f"client {self.slot} ({self.name})"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive


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
        self.hung = 0  # whose library did not come back (`heartbeat.py`)
        self.watching: list[Callable[[Txn], None]] = []  # who else sees the history grow
        self.began_s = time.monotonic()
        self._module = module
        self._words = words
        self._life_s = life_s  # on average; 0: nobody crashes
        self._rng = random.Random(f"{seed}/clients")
        self.all = [Client(slot) for slot in range(count)]
        self.lock = threading.Lock()  # who is held by it is neither replaced nor crashed
        self._twin: Client | None = None
        self._twins = 0
        self._goes_on = True  # clients are crashed on purpose
        self._notes_folder = folder.path / "clients"
        self._notes_folder.mkdir(exist_ok=True)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    @property
    def oldest_s(self) -> float:
        """When the first of what any of them is at was begun, as far as it is known by now."""
        return min((each.notes.oldest_s for each in self._there() if each.notes), default=NEVER)

    def start(self) -> None:
        for client in self.all:
            self._start(client)

    def _start(self, client: Client, *more: str) -> None:
        client.life += 1
        client.did |= client.notes is not None and client.notes.did
        file = self._notes_folder / f"client-{client.slot}.{client.life}.jsonl"
        client.notes = Notes(file, self.began_s)
        where = ["--slot", str(client.slot), "--life", str(client.life), "--notes", str(file)]
        words = self._words(client.slot, list(self.known.keys))
        command = [sys.executable, "-m", self._module, *words, *where, *more]
        client.process = Process(command, log=file.with_suffix(".log"))
        lasting(client.process.start)
        client.crash_at_s, client.name, client.is_killed = NEVER, "", False

    def tick(self) -> None:
        with self.lock:
            self._tick()

    def _tick(self) -> None:
        found: list[Txn] = []
        gone: list[Client] = []
        for client in self._there():
            assert client.process is not None and client.notes is not None
            if not client.process.alive:
                self._account(client)
                found += client.notes.left_open(time.monotonic())
                gone.append(client)
            elif self._is_to_crash(client):
                client.process.kill()
                self.crashes += client is not self._twin
                found += self._crashed(client)
                gone.append(client)
            else:
                new = client.notes.ended()
                client.name = client.notes.name
                client.transacted_s = client.notes.transacted_s
                if not client.paused and stands_still(client.process.pid):
                    os.kill(client.process.pid, signal.SIGCONT)  # it went to sleep too late
                if new and self._life_s and client.crash_at_s == NEVER:
                    # From now on: where a machine is busy, a process takes seconds to be there.
                    client.crash_at_s = self.now_s + self._rng.uniform(0.5, 1.5) * self._life_s
                found += new
        self.write(found)
        for client in gone:
            if client is self._twin:
                self._twin = None
            elif client.leaving:
                client.process = None
            else:
                self._start(client)

    def _is_to_crash(self, client: Client) -> bool:
        """A twin's time is over whatever else goes on."""
        wanted = self._goes_on or client is self._twin
        return wanted and self.now_s > client.crash_at_s and not client.paused

    def _there(self) -> list[Client]:
        there = [each for each in self.all if each.process is not None]
        return [*there, *([self._twin] if self._twin else [])]

    def _crashed(self, client: Client) -> list[Txn]:
        """Who was reading in it reads no more: what it was not shown is owed to nobody."""
        assert client.notes is not None
        found, now_s = client.notes.left_open(time.monotonic()), self.now_s
        names = dict.fromkeys([op.process for op in found[-1:]]) | client.notes.readers
        return found + [
            Txn("crash", "info", name, began_s=now_s, ended_s=now_s, why="killed") for name in names
        ]

    def idle(self) -> list[int]:
        """Places in which nothing was ever done: a client that hangs before its first operation fails no rule."""
        return [each.slot for each in self.all if not (each.did or (each.notes and each.notes.did))]

    def _account(self, client: Client) -> None:
        assert client.process is not None
        code = client.process.exit_code
        if code in HANGS:
            self.hung += 1
        elif code == -signal.SIGKILL and not client.is_killed:
            self.ended.append(
                f"client {client.slot} ended with {code}: killed, and not by this run"
            )
        elif code not in (*STOPPED, -signal.SIGKILL):
            said = client.process.said()[-SAID_CHARACTERS:]
            self.ended.append(f"client {client.slot} ended with {code}: {said}")

    def write(self, found: list[Txn]) -> None:
        """In the order of ends: whoever reads the history meets the acknowledgement of a process before its next."""
        found.sort(key=lambda op: op.ended_s)
        for op in found:
            self.known.see(op)
            for see in self.watching:
                see(op)
        self.folder.append_text(HISTORY, map(to_line, found))

    # -- what faults do to them ------------------------------------------------------------------

    def start_twin(self, transactional_id: str) -> Client | None:
        """A second client with an id that another one has, until `end_twin`. Not while there is another twin."""
        with self.lock:
            if self._twin is not None:
                return None
            self._twin = Client(TWIN_SLOT, self._twins)
            self._start(self._twin, "--transactional-id", transactional_id)
            self._twins = self._twin.life
            return self._twin

    def end_twin(self, twin: Client, in_s: float) -> None:
        """Unless it is to end at once, as all do."""
        with self.lock:
            if twin.crash_at_s:
                twin.crash_at_s = self.now_s + in_s

    def is_there(self, twin: Client) -> bool:
        """Not ended; or nobody has read yet what it has written down."""
        return self._twin is twin

    def resume(self, client: Client) -> None:
        """One that was paused, and none that another fault has paused since."""
        with self.lock:
            if client.paused and client.alive:
                assert client.process is not None
                os.kill(client.process.pid, signal.SIGCONT)
            client.paused = False

    def wake_all(self) -> None:
        for client in self.all:
            self.resume(client)

    # -- the end ---------------------------------------------------------------------------------

    def retire(self, stops_first: Callable[[int], bool]) -> Callable[[], bool]:
        """Those in these places end what they are at, and nobody follows them; nobody is crashed any more. `tick` until
        what is returned says that they are gone: who takes too long is killed there."""
        self.wake_all()
        leaving = [client for client in self.all if stops_first(client.slot)]
        with self.lock:
            self._goes_on = False
            if self._twin is not None:
                self._twin.crash_at_s = 0.0
            for client in leaving:
                client.leaving = True
                if client.process is not None and client.process.alive:
                    os.kill(client.process.pid, signal.SIGTERM)
        late = time.monotonic() + STOP_S

        def are_gone() -> bool:
            here = [client for client in leaving if client.process is not None]
            if time.monotonic() > late:
                for client in here:
                    assert client.process is not None
                    client.is_killed = client.process.alive
                    client.process.kill()
            return not here

        return are_gone

    def stop(self) -> None:
        """All end what they are at; who does not in time is killed, and what it was at is unknown."""
        self.wake_all()
        there = [each for each in self._there() if each.process is not None]
        for client in there:
            if client.process is not None and client.process.alive:
                os.kill(client.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        found: list[Txn] = []
        for client in there:
            assert client.process is not None and client.notes is not None
            late = max(time.monotonic() + 0.1, deadline)
            client.process.stop(late - time.monotonic())
            client.is_killed |= time.monotonic() >= late
            self._account(client)
            found += client.notes.left_open(time.monotonic())
        self.write(found)

    def kill(self) -> None:
        for client in self._there():
            if client.process is not None:
                client.process.kill()


def stands_still(pid: int) -> bool:
    """Stopped by a signal; of one that has just ended nobody knows."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"
