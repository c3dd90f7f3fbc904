"""By what rows are known again: what changes it, and what does not."""

import random
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from fencepost.clients.spark import row_marks
from fencepost.clients.spark.row_marks import SALTS, MarkedRows, RowMarks, marks_of, total
from hypothesis import given, settings
from hypothesis import strategies as st

Row = tuple[bytes | None, bytes | None, str | None, int | None]
TEXTS = st.one_of(st.none(), st.binary(max_size=20))
ROWS = st.lists(
    st.tuples(
        TEXTS,
        TEXTS,
        st.one_of(st.none(), st.text(max_size=5)),
        st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    ),
    max_size=12,
)


def batch_of(rows: Sequence[Row], *, kind: Any = None) -> pa.RecordBatch:
    keys, values, topics, partitions = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.record_batch(
        {
            "key": pa.array(keys, kind or pa.binary()),
            "value": pa.array(values, kind or pa.binary()),
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
        }
    )


def marks(*batches: pa.RecordBatch) -> RowMarks:
    seen = MarkedRows(with_topics=True)
    for each in batches:
        seen.see(each)
    return seen.marks


def of_values(*values: str) -> RowMarks:
    return marks(pa.record_batch({"value": pa.array(values, pa.string())}))


@settings(max_examples=60, deadline=None)
@given(ROWS, st.data())
def test_the_same_rows_have_the_same_marks_in_any_order_and_division(
    rows: list[Row], data: st.DataObject
) -> None:
    """A shuffle gives them in another order, a stage with other tasks in other parts."""
    again = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    one, two, three = again[: cuts[0]], again[cuts[0] : cuts[1]], again[cuts[1] :]
    tasks = [marks(batch_of(one), batch_of(two)), marks(batch_of(three))]
    assert total(tasks) == marks(batch_of(rows))


def plainly(rows: Sequence[Row]) -> RowMarks:
    """The same, row by row."""

    def mixed(word: int, salt: int) -> int:
        once = word * salt % 2**64
        return (once ^ (once >> 32)) * salt

    summed = exact = 0
    for key, value, topic, partition in rows:
        parts = (
            ("key", key),
            ("value", value),
            ("topic", None if topic is None else topic.encode()),
        )
        known = 0
        for name, part in parts:
            of_nulls, of_bytes, of_tails = SALTS[name]
            known = crc32(b"\0" if part is None else b"\1%d:%b" % (len(part), part), known)
            if part is None:
                summed += of_nulls
                continue
            summed += sum(part) * of_bytes
            summed += mixed(int.from_bytes(part[-8:].ljust(8, b"\0"), "little"), of_tails)
        exact += known
        of_nulls, _, of_words = SALTS["partition"]
        summed += of_nulls if partition is None else mixed(partition % 2**64, of_words)
    return RowMarks(
        len(rows),
        sum(len(row[0] or b"") for row in rows),
        sum(len(row[1] or b"") for row in rows),
        summed % 2**64,
        exact,
    )


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_sums_of_columns_are_those_of_a_plain_loop(rows: list[Row]) -> None:
    assert marks(batch_of(rows)) == plainly(rows)
    assert marks(batch_of([(b"", b"", "", 0), *rows]).slice(1)) == plainly(rows), "of a slice"


def test_texts_and_bytes_of_any_layout_are_the_same_rows() -> None:
    rows: list[Row] = [(b"k", b"a value of some length", "t", 1), (None, b"", "t", None)]
    kinds = (pa.string(), pa.large_string(), pa.large_binary())
    assert {marks(batch_of(rows, kind=each)) for each in kinds} == {marks(batch_of(rows))}


@pytest.mark.parametrize("limit", [0, row_marks.EXACT_ROWS], ids=["many rows", "few rows"])
@pytest.mark.parametrize(
    "other",
    [
        ["order 000017", "order 000035"],
        ["order 000026", "order 000043"],
        ["order 000017", "order 00026"],
        ["order 000017"],
        ["order 000017", "order 000026", ""],
        ["order 000017", "order 000017"],
    ],
)
def test_other_rows_have_other_marks(monkeypatch: Any, limit: int, other: list[str]) -> None:
    monkeypatch.setattr(row_marks, "EXACT_ROWS", limit)
    assert not of_values("order 000017", "order 000026").may_be(of_values(*other))


def test_rows_that_differ_where_nothing_is_summed_up_are_told_apart_when_they_are_few() -> None:
    """The same length, the same bytes, the same end."""
    assert not of_values("17 of a long row").may_be(of_values("71 of a long row"))


def test_a_task_with_many_rows_is_compared_by_what_both_have(monkeypatch: Any) -> None:
    few = of_values(*"abc")
    monkeypatch.setattr(row_marks, "EXACT_ROWS", 2)
    many = of_values(*"abc")
    assert (few.exact is None, many.exact is None) == (False, True)
    assert few.may_be(many)
    assert not few.may_be(of_values(*"abd"))
    assert (few + many).exact is None


def test_null_is_not_an_empty_text_and_a_key_is_not_a_value() -> None:
    found = {
        marks(batch_of([row]))
        for row in [
            (None, b"", "t", 0),
            (b"", None, "t", 0),
            (b"", b"", "t", 0),
            (b"", b"", "u", 0),
            (b"", b"", "t", 1),
            (b"", b"", "t", None),
        ]
    }
    assert len(found) == 6


def test_a_note_says_what_was_marked_and_what_is_no_note_says_nothing() -> None:
    for each in (RowMarks(), of_values(*"abc"), RowMarks(7, 1, 2, 2**64 - 1, None)):
        assert marks_of(each.note()) == each
        assert len(each.note()) < 120
    for text in ("", "2 1 1 1 1 1", "1 2 3", "1 a b c d e", "somebody's own"):
        assert marks_of(text) is None


def test_marks_of_many_rows_are_random_enough() -> None:
    """Rows of one length, of random digits: nothing but their contents tells them apart."""
    dice = random.Random(1)
    found = [of_values(*(f"{dice.randrange(10**12):012}" for _ in range(5_000))) for _ in range(40)]
    assert all(each.exact is None for each in found)
    assert len({each.mixed for each in found}) == 40
