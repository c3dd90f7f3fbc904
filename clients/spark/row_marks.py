"""By what rows are known again: how many, their bytes, and sums in which the order of rows and tasks does not count.

INVARIANT  the same rows have the same marks, in whatever order, batches and tasks they come.
PREVENTS   new rows that are taken for those that were committed under their number, and left out in silence.
PROVED BY  tests/spark/test_spark_row_marks.py::test_the_same_rows_have_the_same_marks_in_any_order_and_division

Spark's rows come in another order when they were shuffled, so what is added up is something of each row or of each byte:
 - of all rows: how many, the bytes of their keys and values, and the sum of those bytes;
 - of all rows: their key's and value's last eight bytes, mixed, so that a digit that moved is seen;
 - of tasks that have few rows: a checksum of each row as a whole. It costs a Python object a row, which is nothing there,
   and there the other sums are at their weakest.
Headers are not looked at. Nothing here is proof against somebody who makes rows up to deceive it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

VERSION: Final = "1"
WORD_BYTES: Final = 8
WORDS_MODULO: Final = 1 << 64
# Of a task whose rows are all looked at one by one: about 2 ms in all.
EXACT_ROWS: Final = 4_096
EXACT_BYTES: Final = 1 << 20
NONE_OF_IT: Final = "-"
WORDS_OF_MARKS: Final = 5
# Odd numbers without a pattern, so that sums do not cancel each other: for a column's nulls, bytes, and tails.
SALTS: Final = {
    "key": (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    "value": (0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB),
    "topic": (0x8EBC6AF09C88C6E3, 0x589965CC75374CC3, 0x1D8E4E27C47D124F),
    "partition": (0xEB44ACCAB455D165, 0x2545F4914F6CDD1D, 0x9FB21C651E98DF25),
}


@dataclass(frozen=True, slots=True)
class RowMarks:
    """Of any number of tasks; a task that has no rows has these."""

    rows: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    mixed: int = 0
    exact: int | None = 0  # None when one of the tasks had too many rows

    def __add__(self, other: "RowMarks") -> "RowMarks":
        is_exact = self.exact is not None and other.exact is not None
        return RowMarks(
            self.rows + other.rows,
            self.key_bytes + other.key_bytes,
            self.value_bytes + other.value_bytes,
            (self.mixed + other.mixed) % WORDS_MODULO,
            ((self.exact or 0) + (other.exact or 0)) % WORDS_MODULO if is_exact else None,
        )

    def may_be(self, other: "RowMarks") -> bool:
        """Whether nothing says that these are other rows. Where one was not exact, only what both have is compared."""
        if None in (self.exact, other.exact):
            return self._sums() == other._sums()
        return self == other

    def _sums(self) -> tuple[int, ...]:
        return self.rows, self.key_bytes, self.value_bytes, self.mixed

    def told(self) -> str:
        """As a person reads it."""
        return f"{self.rows:,} rows with {self.key_bytes:,} bytes of keys and {self.value_bytes:,} of values"

    def note(self) -> str:
        exact = NONE_OF_IT if self.exact is None else f"{self.exact:x}"
        return f"{VERSION} {self.rows} {self.key_bytes} {self.value_bytes} {self.mixed:x} {exact}"


def marks_of(note: str) -> RowMarks | None:
    """None for a decision that has none, or one that this build can't read: then nothing is compared."""
    version, *words = note.split(" ") if note else ("",)
    if version != VERSION or len(words) < WORDS_OF_MARKS:
        return None
    *counts, mixed, exact = words[:WORDS_OF_MARKS]  # others may stand behind them
    try:
        rows, key_bytes, value_bytes = map(int, counts)
        whole = None if exact == NONE_OF_IT else int(exact, 16)
        return RowMarks(rows, key_bytes, value_bytes, int(mixed, 16), whole)
    except ValueError:
        return None


def total(marks: Iterable[RowMarks]) -> RowMarks:
    return sum(marks, RowMarks())


@dataclass(slots=True)
class MarkedRows:
    """What a task has seen so far. `with_topics` where rows name their own."""

    with_topics: bool
    marks: RowMarks = field(default_factory=RowMarks)

    def see(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        columns = {
            name: _binary(rows.column(name))
            for name in ("key", "value", *(("topic",) if self.with_topics else ()))
            if name in rows.schema.names
        }
        sizes = {}
        mixed = 0
        for name, column in columns.items():
            sizes[name], of_column = _of_column(column, *SALTS[name])
            mixed += of_column
        if "partition" in rows.schema.names:
            mixed += _of_numbers(rows.column("partition"), *SALTS["partition"])
        key_bytes, value_bytes = sizes.get("key", 0), sizes["value"]
        seen = self.marks
        is_few = (
            seen.exact is not None
            and seen.rows + rows.num_rows <= EXACT_ROWS
            and seen.key_bytes + seen.value_bytes + key_bytes + value_bytes <= EXACT_BYTES
        )
        exact = _each(list(columns.values())) if is_few else None
        self.marks = seen + RowMarks(
            rows.num_rows, key_bytes, value_bytes, mixed % WORDS_MODULO, exact
        )


def _binary(column: pa.Array) -> pa.Array:
    """Texts and bytes with the same bytes are the same; no copy of what Spark hands over."""
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _of_column(column: pa.Array, of_nulls: int, of_bytes: int, of_tails: int) -> tuple[int, int]:
    """How many bytes are in its rows, and what is summed up of them."""
    nulls = column.null_count
    if nulls:
        column = column.drop_null()  # what stands behind a null is anybody's guess
    begin, end = _edges(column)
    if begin == end:
        return 0, nulls * of_nulls
    data = column.buffers()[2]
    each = pa.Array.from_buffers(pa.uint8(), end - begin, [None, data], offset=begin)
    summed = pc.sum(each).as_py() * of_bytes + _of_words(_tails(column), of_tails)
    return end - begin, nulls * of_nulls + summed


def _edges(column: pa.Array) -> tuple[int, int]:
    """Where the bytes of its first row begin, and those of its last one end."""
    count = len(column)
    if not count:
        return 0, 0
    where = [None, column.buffers()[1]]
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, where, offset=column.offset)
    return offsets[0].as_py(), offsets[count].as_py()


def _tails(column: pa.Array) -> pa.Array:
    """The last eight bytes of each row as a number; of a shorter one all of it, and zeros."""
    count = len(column)
    tails = pc.binary_slice(column, -WORD_BYTES)
    if _edges(tails) != (0, WORD_BYTES * count):
        # Called a text, because texts alone are padded: by bytes, whatever they are.
        where = tails.buffers()
        text = pa.Array.from_buffers(pa.string(), count, where, offset=tails.offset)
        tails = pc.ascii_rpad(text, WORD_BYTES, padding="\0")
    assert _edges(tails) == (0, WORD_BYTES * count), "each row has eight bytes"
    return pa.Array.from_buffers(pa.uint64(), count, [None, tails.buffers()[2]])


def _of_words(words: pa.Array, salt: int) -> int:
    """Multiplied, folded and multiplied again: the sum of that is not the sum of the words."""
    factor = pa.scalar(salt, pa.uint64())
    once = pc.multiply(words, factor)
    folded = pc.bit_wise_xor(once, pc.shift_right(once, pa.scalar(32, pa.uint64())))
    summed: int = pc.sum(pc.multiply(folded, factor)).as_py()
    return summed


def _of_numbers(column: pa.Array, of_nulls: int, _: int, of_words: int) -> int:
    words = column.drop_null().cast(pa.int64()).view(pa.uint64())
    summed = _of_words(words, of_words) if len(words) else 0
    return int(column.null_count) * of_nulls + summed


def _each(columns: list[pa.Array]) -> int:
    """A checksum of each row, added up. Its parts' lengths are in it: `ab`, `c` is another row than `a`, `bc`."""
    summed = 0
    for parts in zip(*(each.to_pylist() for each in columns), strict=True):
        known = 0
        for part in parts:
            known = crc32(b"\x00" if part is None else b"\x01%d:%b" % (len(part), part), known)
        summed += known
    return summed
