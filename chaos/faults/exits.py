"""How nodes ended that nobody had ended: looked at before each start and each kill, and when all is over.

INVARIANT  an end that no fault asked for is told once, with its exit code, before the node is started again; so is a clean
           stop that was none.
PREVENTS   a node that dies of a broken invariant and is brought back by the next fault, in a run that is valid.
PROVED BY  tests/chaos/test_faults_exits.py::test_a_node_that_ended_by_itself_is_told_of_before_it_is_started_again

A node may end for a disk that fails it, and refuse to start on files that were damaged: those are excused, and told of all the
same. A broken invariant is excused by nothing; of damaged files it proves nothing. Nor is the end by a signal: whom the kernel
kills has not ended for its disk.
"""

import json
import re
import signal
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from fencepost.cluster.base.exit_codes import EXIT_BROKEN, EXIT_OK

from .system import System

DAMAGE: Final = "damage"
MAY_END: Final = frozenset({"disk-full", "disk-slow", "disk-fail", DAMAGE})  # faults, by name
STARTS: Final = "node_starts"
BROKEN: Final = "broken_invariant"
REFUSED: Final = "node_refused"
# The exit code is no proof of it: a node that says in a sentence why it can't go on ends with the same.
LAST_EVENTS: Final = (BROKEN, "node_ends", REFUSED)
OS_ERROR: Final = re.compile(r"\w+Error\(\d+, ")  # as it is written down: with its number
ASSERTION: Final = "AssertionError"
CAUSE_MAX: Final = 300  # characters
BY_SIGNAL: Final = 128  # and above, or negative
JVM_STOPPED: Final = BY_SIGNAL + signal.SIGTERM
KAFKA: Final = "kafka"


@dataclass(frozen=True, slots=True)
class Exit:
    """`broken`: of a broken invariant, by its own word. `excused`: a fault of the run explains it."""

    node: int
    code: int | None
    cause: str
    broken: bool
    excused: bool
    was_told: bool = False

    def __str__(self) -> str:
        how = "was told to stop and ended" if self.was_told else "ended by itself"
        return f"node {self.node} {how} with {self.code}: {self.cause}"


class Watched:
    """A system, seen through: all that it can do, it does. Used from several threads."""

    def __init__(self, system: System) -> None:
        self.exits: list[Exit] = []
        self._system = system
        self._ours: set[int] = set()  # ended by us, and not started since
        self._struck: dict[int, str] = {}  # node -> the fault that it may end of
        self._over: set[int] = set()  # of those, whose fault is over: excused until the next start
        self._fresh: set[int] = set()  # of those, who was started while it was healed
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def __enter__(self) -> Self:
        self._system.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ours.update(self._system.nodes)
        self._system.__exit__(*raised)

    # -- who may end -------------------------------------------------------------------------------

    def may_end(self, nodes: Iterable[int], fault: str) -> None:
        with self._lock:
            for node in nodes:
                self._forget(node)
                self._struck[node] = fault

    def over(self, nodes: Iterable[int]) -> None:
        """What their fault left in them lasts until they are started again."""
        with self._lock:
            for node in self._struck.keys() & set(nodes):
                if node in self._fresh:
                    self._forget(node)
                else:
                    self._over.add(node)

    def _forget(self, node: int) -> None:
        self._struck.pop(node, None)
        self._over.discard(node)
        self._fresh.discard(node)

    def was_to_end(self, node: int) -> None:
        """A fault has waited for it, and knows why."""
        with self._lock:
            self._ours.add(node)

    # -- what ends and starts them -----------------------------------------------------------------

    def kill(self, node: int, signal_number: int = signal.SIGKILL) -> None:
        self._look(node)
        ran = self._system.runs(node)
        served = signal_number == signal.SIGTERM and self._system.is_up(node)
        self._ours.add(node)
        self._system.kill(node, signal_number)
        if ran and signal_number == signal.SIGTERM:
            self._stopped(node, self._system.exit_code(node), served=served)

    def start(self, node: int) -> None:
        self._look(node)
        self._system.start(node)
        self._ours.discard(node)
        with self._lock:
            if node in self._over:
                self._forget(node)
            elif node in self._struck:
                self._fresh.add(node)

    def stop(self) -> Mapping[int, int]:
        self.look()
        self._ours.update(self._system.nodes)
        codes = self._system.stop()
        for node, code in codes.items():
            self._stopped(node, code, served=True)
        return codes

    # -- looking -----------------------------------------------------------------------------------

    def look(self) -> None:
        for node in self._system.nodes:
            self._look(node)

    def _look(self, node: int) -> None:
        with self._lock:
            # Asked again behind the look at its process: who kills says so first.
            if node in self._ours or self._system.runs(node) or node in self._ours:
                return
            self._ours.add(node)
            self._tell(node, self._system.exit_code(node), was_told=False)

    def _stopped(self, node: int, code: int | None, *, served: bool) -> None:
        """A process that had not begun to listen for it may end of the signal."""
        clean = {EXIT_OK} if served else {EXIT_OK, -signal.SIGTERM, JVM_STOPPED}
        if self._system.name == KAFKA:
            clean.add(JVM_STOPPED)
        if code not in clean:
            with self._lock:
                self._tell(node, code, was_told=True)

    def _tell(self, node: int, code: int | None, *, was_told: bool) -> None:
        event, cause = last_words(self._system.said(node))
        broken = event == BROKEN or (not event and code == EXIT_BROKEN)
        broken = broken and not OS_ERROR.match(cause)
        fault = self._struck.get(node)
        by_signal = code is not None and not 0 <= code < BY_SIGNAL
        excused = fault is not None and not broken and not by_signal
        self.exits.append(Exit(node, code, cause, broken and fault != DAMAGE, excused, was_told))


def watched(system: System) -> Watched:
    return system if isinstance(system, Watched) else Watched(system)


def last_words(said: str) -> tuple[str, str]:
    """What the end of a log says of the end of its process: the event, if it has one, and the cause."""
    event = cause = last = ""
    for line in filter(None, map(str.strip, said.splitlines())):
        told = _event(line)
        if told.get("event") == STARTS:
            event = cause = ""
        elif told.get("event") in LAST_EVENTS:
            event, cause = str(told["event"]), str(told.get("cause", ""))
        elif line.startswith(ASSERTION):
            event, cause = BROKEN, line
        last = line
    return event, (cause or last)[:CAUSE_MAX]


def _event(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
