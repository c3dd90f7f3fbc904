"""A loop's history while it goes on: what clients have learned is in the run's folder about a second later.

INVARIANT  such a history begins with a line that says so (`open`), and is replaced whole by the one that is judged; the pass after
           all faults is in that one only.
PREVENTS   a loop that was killed leaving nothing of what it had measured, or being taken for one that has lost what nobody
           had come to read.
PROVED BY  tests/chaos/test_loop_ended.py::test_a_loop_that_was_killed_keeps_what_it_measured_and_is_unknown,
           tests/chaos/test_loop_ended.py::test_of_a_history_that_is_open_nothing_is_called_lost
"""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..checkers.history import FINAL, History, to_line
from ..checkers.txn_history import to_line as txn_to_line
from ..runs.notes import Notes

EVERY_S: Final = 1.0

New = Callable[[], Iterable[str]]  # lines, since it was last asked


class Growing:
    """For the time of a `with`; at its end `write` is given the rest."""

    def __init__(self, new: New, write: Callable[[Iterable[str]], None]) -> None:
        self._new = new
        self._write = write
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="history", daemon=True)

    def _go_on(self) -> None:
        while not self._over.wait(EVERY_S):
            self._write(self._new())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._write(self._new())


def of_stream(history: History) -> New:
    """Of one that is appended to from other threads."""
    at = 0

    def new() -> list[str]:
        nonlocal at
        some = history[at:]
        at += len(some)
        return [to_line(op) for op in some if op.process != FINAL]

    return new


def of_notes(files: Callable[[], Iterable[Path]]) -> New:
    """What has come to an end, in the notes of processes of which there are more and more."""
    known: dict[Path, Notes] = {}

    def new() -> list[str]:
        for file in list(files()):
            known.setdefault(file, Notes(file, 0.0))
        found = [op for notes in known.values() for op in notes.ended()]
        return [txn_to_line(op) for op in sorted(found, key=lambda op: op.ended_s)]

    return new
