"""Transactions that end before their time, as their producers hear of it."""

from fencepost.chaos.checkers.timeouts import Timeouts


def fenced(timeouts: Timeouts, age_s: float) -> list[str]:
    return [each.rule for each in timeouts.fenced("pay", age_s, 3.0)]


def test_who_is_fenced_before_its_time_is_up_is_seen() -> None:
    timeouts = Timeouts()
    timeouts.begins("pay", 1)
    timeouts.begins("pay", 1)  # with its next epoch (KIP-360)
    assert fenced(timeouts, 0.6) == ["ended-early"]
    assert fenced(timeouts, 3.1) == []


def test_another_life_of_its_id_may_have_fenced_it() -> None:
    """Also one of its own, whose request had no answer and came late."""
    timeouts = Timeouts()
    timeouts.begins("pay", 1)
    timeouts.begins("pay", 2)
    assert fenced(timeouts, 0.6) == []
    timeouts = Timeouts()
    timeouts.begins("pay", 1)
    timeouts.may_come_late("pay")
    assert fenced(timeouts, 0.6) == []
