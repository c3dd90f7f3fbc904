"""Who asks for the offset of a time is told of the first record that is not older."""

import random

from fencepost.chaos.checkers.observations import Sought
from fencepost.chaos.checkers.sought import YOUNGEST, check
from fencepost.chaos.workloads.time_seeker import Noted
from fencepost.cluster.wire.records import Record

KEY = "t-0"
TIMES = {0: 100, 1: 300, 2: 200, 3: 300, 4: 250}


def rules(wanted_ms: int, offset: int, at_ms: int, end: int = 5) -> list[str]:
    answer = Sought("s", KEY, wanted_ms, offset, at_ms, end)
    return [each.rule for each in check([answer], {KEY: TIMES})]


def test_the_first_that_is_not_older_is_right() -> None:
    assert rules(100, 0, 100) == []
    assert rules(101, 1, 300) == []
    assert rules(200, 1, 300) == []


def test_an_earlier_record_that_is_as_young_is_seen() -> None:
    assert rules(200, 2, 200) == ["wrong-time"]
    assert rules(300, 3, 300) == ["wrong-time"]


def test_a_record_that_is_not_there_or_of_another_time_is_seen() -> None:
    assert rules(300, 9, 300) == ["wrong-time"]
    assert rules(300, 1, 301) == ["wrong-time"]
    assert rules(200, 0, 100) == ["wrong-time"]


def test_no_answer_where_there_is_a_record_is_seen() -> None:
    assert rules(301, -1, -1) == []
    assert rules(300, -1, -1) == ["wrong-time"]
    assert rules(300, -1, -1, end=1) == []  # it was not committed yet


def test_the_youngest_is_the_first_of_the_latest_time() -> None:
    assert rules(YOUNGEST, 1, 300) == []
    assert rules(YOUNGEST, 3, 300) == ["wrong-time"]
    assert rules(YOUNGEST, 0, 100) == ["wrong-time"]
    assert rules(YOUNGEST, 0, 100, end=1) == []
    assert rules(YOUNGEST, -1, -1) == []  # the latest is not committed yet


def test_what_was_shown_is_noted_with_its_time() -> None:
    noted = Noted(random.Random(1), lambda _: None)
    noted.check(("t", 0), [Record(7, 70, None, b"a/1")])
    assert noted.times == {KEY: {7: 70}}
