"""Partitions of a group of the new protocol, as its members are told of them."""

from fencepost.chaos.checkers.held import Held
from fencepost.chaos.checkers.observations import Asks, Heard

P, Q = ("in", 0), ("in", 1)


def rules(*seen: Asks | Heard) -> list[str]:
    held = Held()
    return [each.rule for one in seen for each in held.see(one)]


def test_a_partition_that_another_was_given_while_its_member_held_it_is_seen() -> None:
    mine, theirs = Heard("a", 1, (), (P, Q)), Heard("b", 2, (), (Q,))
    assert rules(mine, theirs, Heard("a", 2, (P, Q), (P,))) == ["held-by-two"]


def test_one_that_was_given_up_is_the_other_s() -> None:
    mine, less = Heard("a", 1, (), (P, Q)), Heard("a", 1, (P, Q), (P,))
    theirs = Heard("b", 2, (), (Q,))
    assert rules(mine, less, theirs, Heard("a", 2, (P,), (P,)), Heard("b", 2, (Q,), (Q,))) == []


def test_an_answer_that_came_late_is_of_the_epoch_that_it_has() -> None:
    """Its member was fenced by then, and is told so when it asks again."""
    late = (Heard("b", 3, (), (P,)), Heard("a", 2, (), (P,)), Heard("b", 3, (P,), (P,)))
    assert rules(*late) == []
    assert rules(*late, Heard("a", 3, (P,), (P,))) == ["held-by-two"]


def test_who_asked_before_the_other_was_given_it_may_have_been_fenced_since() -> None:
    """Its process stood still, and reads the answer now."""
    mine, theirs = Heard("a", 16, (), (P,)), Heard("b", 19, (), (P,))
    late = Heard("a", 16, (P,), (P,))
    assert rules(mine, Asks("a"), Asks("b"), theirs, late) == []
    assert rules(mine, Asks("b"), theirs, Asks("a"), late) == ["held-by-two"]
    assert rules(mine, Asks("a"), theirs, late, Asks("a"), late) == ["held-by-two"]
