"""The checker of what a group consumes, on histories of a few transactions."""

from fencepost.chaos.checkers import consumed
from fencepost.chaos.checkers.history import FINAL, Anomaly
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from fencepost.chaos.checkers.txn_verdict import judge

FEED = Txn("txn", "ok", "feeder", 1, sends=[Sent("t-0", value, value) for value in range(4)])
ALL = [Polled("t-0", value, value, 1) for value in range(4)]


def took(process: str, number: int, *values: int, kind: str = "ok", group: str = "lists") -> Txn:
    """A transaction that consumed these, and nothing else."""
    polls = [Polled("t-0", value, value, 1) for value in values]
    return Txn("txn", kind, process, number, polls=polls, offsets={f"{group}|t-0": values[-1] + 1})


def judged(*ops: Txn, final: list[Polled] = ALL) -> list[Anomaly]:
    return consumed.check([FEED, *ops, Txn("read", "ok", FINAL, polls=final)])


def kinds(*ops: Txn) -> list[str]:
    return [each.rule for each in judged(*ops)]


def test_members_that_follow_each_other_are_sound() -> None:
    assert judged(took("a", 2, 0, 1), took("b", 3, 2), took("a", 4, 3)) == []


def test_a_record_that_two_members_have_worked_on_is_repeated() -> None:
    assert kinds(took("a", 2, 0, 1), took("b", 3, 1, 2)) == ["group-repeat"]


def test_a_record_that_nobody_has_worked_on_is_a_skip() -> None:
    assert kinds(took("a", 2, 0, 1), took("b", 3, 3)) == ["group-skip"]


def test_the_first_record_belongs_to_the_group_too() -> None:
    assert kinds(took("a", 2, 1)) == ["group-skip"]


def test_transactions_of_unknown_fate_may_have_filled_a_gap() -> None:
    maybe = [took("b", 3, 1, kind="info"), took("b", 4, 2, kind="info")]
    assert judged(took("a", 2, 0), *maybe, took("a", 5, 3)) == []
    assert kinds(took("a", 2, 0), maybe[0], took("a", 5, 3)) == ["group-skip"]


def test_of_an_unknown_one_its_sends_show_whether_it_was_committed() -> None:
    maybe = took("b", 3, 1, 2, kind="info")
    maybe.sends = [Sent("t-0", 99)]
    assert kinds(took("a", 2, 0), maybe, took("a", 5, 3)) == ["group-skip"]
    seen = [*ALL, Polled("t-0", 9, 99, 3)]
    assert judged(took("a", 2, 0), maybe, took("a", 5, 3), final=seen) == []


def test_without_final_polls_nobody_knows_whether_an_unknown_one_was_committed() -> None:
    maybe = took("b", 3, 1, kind="info")
    maybe.sends = [Sent("t-0", 99)]
    seen = Txn("read", "ok", "r", polls=ALL)
    assert consumed.check([FEED, took("a", 2, 0), maybe, took("a", 5, 2), seen]) == []


def test_a_transaction_that_failed_has_consumed_nothing() -> None:
    assert judged(took("a", 2, 0, 1, kind="fail"), took("b", 3, 0, 1)) == []


def test_groups_that_one_process_has_for_itself_may_read_outside_of_transactions() -> None:
    assert judged(took("a", 2, 3, group="a.1")) == []


def test_the_verdict_of_a_history_of_transactions_looks_at_it() -> None:
    history = [FEED, took("a", 2, 0, 1), took("b", 3, 1, 2), Txn("read", "ok", FINAL, polls=ALL)]
    assert "group-repeat" in {each.rule for each in judge(history).anomalies}
