"""What is committed in a topic is told of that topic alone, though another one comes under its name."""

from math import inf

from fencepost.chaos.checkers.life_positions import Placed, ToldOf, check
from fencepost.chaos.checkers.lives import Change

MADE = [Change("create", "ok", "t", each) for each in ("first", "second")]


def deleted(asked_s: float, kind="ok", topic_id="first") -> Change:
    return Change("delete", kind, "t", topic_id, asked_s)


def rules(told_of: str, *changes: Change, placed_s: float = 5.0, placed_in="first") -> list[str]:
    return rules_of(Placed("g", "t", placed_in, 7, 1.0, placed_s, is_once=True), told_of, *changes)


def rules_of(placed: Placed, told_of: str, *changes: Change) -> list[str]:
    told = ToldOf("r", "g", "t", told_of, 7, 8.0, 8.0)
    return [each.rule for each in check([placed], [told], [*MADE, *changes])]


def test_a_position_of_a_topic_that_was_deleted_is_not_told_of_its_successor() -> None:
    assert rules("first", deleted(6.0)) == []
    assert rules("second", deleted(6.0)) == ["another-life"]
    assert rules("second", deleted(6.0, "info")) == ["another-life"], "it was asked for, at least"
    assert rules("one that nobody has heard of", deleted(6.0)) == ["another-life"]


def test_which_topic_took_it_is_open_where_a_deletion_was_under_way() -> None:
    assert rules("second", deleted(4.0)) == []
    assert rules("second", deleted(4.0), deleted(6.0)) == []
    assert rules("second", deleted(4.0, "fail"), deleted(6.0)) == ["another-life"]
    assert rules("second", deleted(6.0), placed_s=inf) == []


def test_a_position_that_was_sent_twice_may_have_been_taken_by_either() -> None:
    assert rules_of(Placed("g", "t", "first", 7, 1.0, 5.0), "second", deleted(6.0)) == []


def test_a_node_that_learns_of_a_topic_between_two_questions_tells_its_positions() -> None:
    """It had named the one before: it told no lie."""
    later = deleted(6.0, topic_id="second")
    assert rules("first", later, placed_in="second") == []


def test_a_topic_that_is_deleted_between_two_questions_is_told_nothing_of() -> None:
    """Of a name that is no topic's any more a node tells whatever there is: of the one before, too, if it lingers."""
    assert rules("second", deleted(6.0), deleted(7.9, topic_id="second")) == []
    assert rules("second", deleted(6.0), deleted(8.1, topic_id="second")) == ["another-life"]


def test_a_writer_that_knew_no_topic_says_nothing_of_which_took_it() -> None:
    assert rules("second", deleted(6.0), placed_in="None") == []
