"""Where a group is that several share: who began its transaction before another may go on behind it, and commit after it."""

import pytest
from fencepost.chaos.checkers import queue_verdict, torn_transactions
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.queue_stream import stream
from fencepost.chaos.checkers.queue_verdict import CHECKERS
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from test_queue_stream import rules, written

SHARED, OWN = "queue", "g"
VALUES = [Polled("k-0", at, 10 + at, 1 + at) for at in range(2)]


def took(process: str, number: int, at: int, group: str, **more) -> Txn:
    """A transaction that consumed this record, and put the group behind it."""
    op = Txn("txn", "ok", process, number, polls=[VALUES[at]], offsets={f"{group}|k-0": at + 1})
    op.began_s, op.ended_s = float(number), 10.0 + at
    for name, value in more.items():
        setattr(op, name, value)
    return op


def position(number: int, at: int, group: str, who: str = FINAL, began_s: float = 31.0) -> Txn:
    op = Txn("position", "ok", who, began_s=began_s, ended_s=began_s)
    op.offsets, op.writers = {f"{group}|k-0": at}, {f"{group}|k-0": number}
    return op


def lived(*told: Txn, group: str = SHARED) -> list[Txn]:
    """A begins (5) and has nothing of k-0 yet. B begins later (6), polls k-0, commits, and loses it. A is given k-0 in a poll, goes on
    where B has committed, and commits."""
    sent = [
        Txn("send", "ok", "w", 1 + at, [Sent("k-0", 10 + at, at)], began_s=0.1, ended_s=0.2 + at)
        for at in range(2)
    ]
    given = [Txn("assign", "ok", name, began_s=10.5, ended_s=10.5) for name in "ba"]
    both = [took("b", 6, 0, group), *given, took("a", 5, 1, group, rebalanced=["k-0"])]
    last = Txn("read", "ok", FINAL, polls=VALUES, positions={"k-0": 2}, began_s=30.0, ended_s=30.5)
    return [*sent, *both, *(each for each in told if each.process != FINAL), last] + [
        each for each in told if each.process == FINAL
    ]


def found_by_both(tmp_path, history: list[Txn]) -> set[str]:
    plain = rules(torn_transactions.check(history))
    found, _ = stream(written(tmp_path, history), lambda _: None)
    assert rules(found) == plain
    return plain


def test_who_began_before_and_went_on_behind_another_member_has_the_position(tmp_path) -> None:
    """As librdkafka has it: a rebalance falls inside an open transaction."""
    history = lived(position(5, 2, SHARED, "c", 20.0), position(5, 2, SHARED))
    assert [each for check in CHECKERS for each in check(history)] == []
    assert found_by_both(tmp_path, history) == set()


def test_the_same_is_sound_as_a_history_of_any_length(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(queue_verdict, "HELD_BYTES_MAX", 0)
    file = written(tmp_path, lived(position(5, 2, SHARED)))
    assert list(queue_verdict.judge(file).fatal) == []


@pytest.mark.parametrize("who", [FINAL, "c"])
@pytest.mark.parametrize(
    ("number", "at"), [(6, 1), (-1, -1), (-1, 2)], ids=["behind", "none", "nobody's"]
)
def test_a_group_that_is_behind_where_a_member_has_put_it_is_torn(
    tmp_path, who, number, at
) -> None:
    """By number alone the first of them was not seen: 6 began later, and 5 had gone further."""
    asked = position(number, at, SHARED, who, 20.0 if who != FINAL else 31.0)
    ends = [] if who == FINAL else [position(5, 2, SHARED)]
    assert found_by_both(tmp_path, lived(asked, *ends)) == {"torn-offset"}


def test_what_was_put_further_after_it_was_asked_for_is_not_missed(tmp_path) -> None:
    asked = position(6, 1, SHARED, "c", 10.7)
    assert found_by_both(tmp_path, lived(asked, position(5, 2, SHARED))) == set()


def test_a_group_of_ones_own_is_where_its_newest_transaction_has_put_it(tmp_path) -> None:
    """Who has it alone may go back, and begins one transaction after the other."""
    assert found_by_both(tmp_path, lived(position(6, 1, OWN), group=OWN)) == set()
    assert found_by_both(tmp_path, lived(position(5, 2, OWN), group=OWN)) == {"torn-offset"}
