"""What client processes write down, gathered into one history while they go on.

INVARIANT  each operation comes into the history once: when its end was written down, or, of a process that is gone, as far
           as it was known. Times are seconds since the run began.
PREVENTS   a transaction of a killed client that nobody accounts for, so that its records come from nobody.
PROVED BY  tests/chaos/test_queue_notes.py::test_what_a_killed_client_had_begun_comes_into_the_history_as_unknown
"""

from collections.abc import Iterable
from math import inf
from pathlib import Path

from ..checkers.txn_history import Txn, from_line


class Notes:
    """The notes of one process."""

    def __init__(self, file: Path, began_s: float) -> None:
        self.file = file
        self._began_s = began_s  # of the run, on the clock that clients use
        self._at = 0
        self._open: dict[int, Txn] = {}
        self.did = False  # something has come to its end
        self.transacts = False  # it has begun a transaction, at least
        self.name = ""  # under which it did so last, unless that life of it is over
        self.transacted_s = 0.0  # when it was last at it
        self.readers: dict[str, None] = {}  # names under which it was given partitions, in order

    def ended(self) -> list[Txn]:
        """What has come to an end since the last look."""
        found = []
        for op in self._new():
            self._see_who(op)
            if op.ended_s == 0.0:
                self._open[op.number] = op
                continue
            if op.f in ("assign", "subscribe"):
                self.readers[op.process] = None
            if op.number in self._open:
                del self._open[op.number]
            self._shift(op)
            found.append(op)
        self.did |= bool(found)
        return found

    @property
    def oldest_s(self) -> float:
        """When the first of what is under way was begun; of nothing, never."""
        return min((op.began_s for op in self._open.values()), default=inf) - self._began_s

    def _see_who(self, op: Txn) -> None:
        if op.f == "txn":
            self.transacts, self.name = True, op.process
            self.transacted_s = max(op.began_s, op.ended_s) - self._began_s
        elif op.f == "crash" and op.process == self.name:
            self.name = ""

    def left_open(self, now_s: float) -> list[Txn]:
        """What its process, which is gone, had begun. It may have been committed any time until now."""
        found = [*self.ended()]
        for op in self._open.values():
            op.ended_s = now_s
            self._shift(op)
            found.append(op)
        self._open.clear()
        return found

    def _new(self) -> Iterable[Txn]:
        if not self.file.exists() or self.file.stat().st_size == self._at:
            return []
        with self.file.open("rb") as source:
            source.seek(self._at)
            data = source.read()
        whole = data[: data.rfind(b"\n") + 1]  # its writer may be in the middle of a line
        self._at += len(whole)
        return [from_line(line) for line in whole.splitlines()]

    def _shift(self, op: Txn) -> None:
        op.began_s = round(op.began_s - self._began_s, 6)
        op.ended_s = round(op.ended_s - self._began_s, 6)
        op.sent_s = {key: round(at - self._began_s, 6) for key, at in op.sent_s.items()}
