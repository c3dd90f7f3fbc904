"""Rows that a transaction took back are not told, however large it is. No database is asked."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from fencepost.clients.binlog import rollbacks
from fencepost.clients.binlog.changes import CREATE, TRUNCATE, Change, SchemaChange
from fencepost.clients.binlog.columns import Table
from fencepost.clients.binlog.database import CannotFollow
from fencepost.clients.binlog.rollbacks import Held, Span, TakenBack

T = Table("shop", "t", (), ())
Step = tuple[str, str]
ROW = ("row", "")


def incarnation(steps: Sequence[Step], left_out: Sequence[Span]) -> list[int]:
    """The numbers of the rows that are told."""
    held, told = Held(("0-1-7", 0), left_out), []
    for what, name in steps:
        if what == "row":
            told += held.take(Change("0-1-7", held.rows, 0, T, CREATE), 10)
        elif what == "savepoint":
            held.savepoint(name)
        else:
            held.roll_back_to(name) if name else held.roll_back()
    return [each.number for each in [*told, *held.end()]]


def followed(steps: Sequence[Step]) -> tuple[list[int], int]:
    """What is told in the end, and how often it was begun again."""
    left_out: Sequence[Span] = ()
    for again in range(9):
        try:
            return incarnation(steps, left_out), again
        except TakenBack as found:
            left_out = found.spans
    raise AssertionError("begun nine times")


def plainly(steps: Sequence[Step]) -> list[int]:
    rows: list[int] = []
    marks: dict[str, int] = {}
    number = 0
    for what, name in steps:
        if what == "row":
            rows.append(number)
            number += 1
        elif what == "savepoint":
            marks[name] = number
        else:
            rows = [each for each in rows if name and each < marks[name]]
    return rows


STORY = [
    ROW,
    ("savepoint", "a"),
    ROW,
    ("savepoint", "b"),
    ROW,
    ("rollback", "b"),
    ROW,
    ("rollback", "a"),
    ROW,
]


@pytest.mark.parametrize(("bound", "again"), [(1 << 20, 0), (0, 1), (1_100, 1)])
def test_rows_that_were_taken_back_are_not_told(monkeypatch, bound: int, again: int) -> None:
    monkeypatch.setattr(rollbacks, "HELD_BYTES_MAX", bound)
    assert followed(STORY) == ([0, 4], again)
    whole = [*STORY, ("rollback", "")]
    assert followed(whole) == ([], again)


def test_what_was_taken_back_before_it_outgrew_its_bound_costs_no_second_reading(
    monkeypatch,
) -> None:
    monkeypatch.setattr(rollbacks, "HELD_BYTES_MAX", 3 * rollbacks.ROW_BYTES)
    steps = [("savepoint", "a"), ROW, ROW, ("rollback", "a"), ROW, ROW, ROW]
    assert followed(steps) == ([2, 3, 4], 0)


def test_any_transaction_is_told_without_what_it_took_back(monkeypatch) -> None:
    """Against a plain list, however much of it is held; never begun more than twice."""
    for seed in range(500):
        chance = random.Random(seed)
        monkeypatch.setattr(rollbacks, "HELD_BYTES_MAX", chance.choice((0, 1_500, 4_000, 1 << 20)))
        steps: list[Step] = [("savepoint", each) for each in "abc"]
        for _ in range(chance.randrange(40)):
            name = chance.choice("abc")
            steps.append(chance.choice((ROW, ROW, ROW, ("savepoint", name), ("rollback", name))))
        if chance.random() < 0.1:
            steps.append(("rollback", ""))
        told, again = followed(steps)
        assert told == plainly(steps), seed
        assert again <= 1, seed


def test_a_schema_change_is_not_taken_back() -> None:
    held = Held(("0-1-7", 0))
    events: list[Any] = [
        SchemaChange("0-1-7", 0, "shop", "CREATE TABLE u (i INT)"),
        Change("0-1-7", 0, 0, T, TRUNCATE),
        Change("0-1-7", 1, 0, T, CREATE),
    ]
    for each in events:
        assert list(held.take(each, 10)) == []
    held.roll_back()
    assert list(held.end()) == events[:2]


def test_a_savepoint_that_nobody_knows_ends_the_stream() -> None:
    with pytest.raises(CannotFollow, match=r"0-1-7.*ROLLBACK TO 'a'.*--resnapshot"):
        Held(("0-1-7", 0)).roll_back_to("a")


def test_what_was_taken_back_is_said() -> None:
    said = str(TakenBack(("0-1-7", 0), [(0, 2), (4, 5), (6, 7), (8, 9)]))
    assert "0-1-7 rolled back rows" in said
    assert "rows 0 to 1, 4 to 4, 6 to 6 and 1 more spans" in said
