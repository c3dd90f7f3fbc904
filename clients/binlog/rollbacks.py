"""What a transaction took back while it was under way: its rows are in the log, and they never happened.

INVARIANT  when a transaction's end is told, its rows that were told are all but those that it took back.
PREVENTS   a row that is in a topic and in no table: its INSERT is in the log, and behind it a ROLLBACK.
PROVED BY  tests/binlog/test_binlog_rollbacks.py::test_rows_that_were_taken_back_are_not_told

A database cuts off its log what was rolled back, unless something in the transaction can't be undone (CREATE TEMPORARY TABLE, a
table without transactions): then all of it is logged, with ROLLBACK or ROLLBACK TO behind the rows.

1. A transaction is held here until it ends, and what it took back is left out.
2. One that outgrows HELD_BYTES_MAX is told as it comes. If it then takes back rows that were told, `TakenBack` is raised at its
   end: the incarnation's transaction of Kafka is aborted.
3. The next incarnation meets the transaction again, is told which of its rows to leave out, and at the end compares.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from .changes import TRUNCATE, Change, SchemaChange
from .database import CannotFollow

HELD_BYTES_MAX: Final = 8 << 20  # of the log's bytes, and ROW_BYTES for each row
ROW_BYTES: Final = 512  # what a row needs in Python (measured: 390 with one column, 690 with six)

Span = tuple[int, int]  # the first row, and the one behind the last
# A GTID, and which of it: a database that dies in a transaction gives its GTID to the next one.
Name = tuple[str, int]
LeftOut = Mapping[Name, Sequence[Span]]


class TakenBack(Exception):
    """Rows that were told have been rolled back: abort, and begin again with `spans` left out."""

    def __init__(self, name: Name, spans: Sequence[Span]) -> None:
        super().__init__(
            f"{name[0]} rolled back rows that are written, not committed ({_as_text(spans)}): they are aborted, and what comes after "
            "the last commit is written again without them"
        )
        self.name, self.spans = name, tuple(spans)


class Held:
    """One transaction, from its GTID to its end."""

    def __init__(self, name: Name, left_out: Sequence[Span] = ()) -> None:
        """`left_out` is what an earlier incarnation found."""
        self.name = name
        self.rows = 0  # the next row's number, or the next emptied table's
        self._events: list[Change | SchemaChange] | None = []  # None: it outgrew its bound
        self._bytes = 0
        self._left_out = tuple(left_out)
        self._savepoints: dict[str, int] = {}  # how many rows there were
        self._undone: list[Span] = []  # ascending, and apart

    def take(self, found: Change | SchemaChange, size: int) -> Iterator[Change | SchemaChange]:
        """Gives back what is to be told now: nothing as a rule."""
        if isinstance(found, Change):
            self.rows += 1
        if self._events is None:
            if not _is_in(found, self._left_out):
                yield found
            return
        self._events.append(found)
        self._bytes += size + ROW_BYTES
        if self._bytes > HELD_BYTES_MAX:
            events, self._events = self._events, None
            self._left_out = self._left_out or tuple(self._undone)
            yield from (each for each in events if not _is_in(each, self._left_out))

    def savepoint(self, name: str) -> None:
        self._savepoints[name] = self.rows

    def roll_back_to(self, name: str) -> None:
        if name not in self._savepoints:
            raise CannotFollow(
                f"{self.name[0]}: the database logged a ROLLBACK TO {name!r}, and no such savepoint before it: which rows it took "
                "back can't be known. Start with --resnapshot"
            )
        self._undo(self._savepoints[name])

    def roll_back(self) -> None:
        self._undo(0)

    def _undo(self, first: int) -> None:
        if first == self.rows:
            return
        while self._undone and self._undone[-1][1] >= first:
            first = min(first, self._undone.pop()[0])
        self._undone.append((first, self.rows))

    def end(self) -> Iterator[Change | SchemaChange]:
        """What is still to be told."""
        if self._events is not None:
            yield from (each for each in self._events if not _is_in(each, self._undone))
        elif self._left_out != tuple(self._undone):
            raise TakenBack(self.name, self._undone)


def _is_in(found: Change | SchemaChange, spans: Sequence[Span]) -> bool:
    """Only rows are taken back: a statement that changes a schema is not."""
    if not spans or isinstance(found, SchemaChange) or found.op == TRUNCATE:
        return False
    at = bisect_right(spans, found.number, key=lambda span: span[0]) - 1
    return at >= 0 and found.number < spans[at][1]


def _as_text(spans: Sequence[Span]) -> str:
    shown = ", ".join(f"{first} to {end - 1}" for first, end in spans[:3])
    return f"rows {shown}" + (f" and {len(spans) - 3} more spans" if len(spans) > 3 else "")
