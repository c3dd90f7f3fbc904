"""Every checker of transactions sees its anomaly in a history of at most seven operations, and nothing in a good one."""

import pytest
from fencepost.chaos.checkers import (
    aborted_reads,
    bank,
    cycles,
    exactly_once,
    polls,
    torn_transactions,
    txn_log,
    txn_lost,
    txn_verdict,
)
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, from_lines, to_line

A, B = "t-0", "t-1"


def txn(number, *sends, polls=(), kind="ok", process="a", offsets=None, at=0.0):
    return Txn(
        "txn",
        kind,
        process,
        number,
        [Sent(*each) for each in sends],
        [Polled(*each) for each in polls],
        offsets or {},
        began_s=at,
        ended_s=at + 1,
    )


def read(*polls, process=FINAL, kind="ok", at=50.0):
    some = [Polled(*each) for each in polls]
    return Txn("read", kind, process, polls=some, began_s=at, ended_s=at)


def position(number, at_offset, process="a", at=40.0):
    """The group `g` is at that offset, by the word of that transaction."""
    op = Txn("position", "ok", process, began_s=at, ended_s=at)
    op.offsets, op.writers = {"g|t-0": at_offset}, {"g|t-0": number}
    return op


def rules(anomalies):
    return sorted(each.rule for each in anomalies)


GOOD = [
    txn(1, (A, 10, 0), (B, 11, 0), offsets={"g|t-0": 6}),
    txn(2, (A, 20, 2), kind="fail", at=2.0),
    txn(3, (A, 30, None), (B, 31, None), polls=[(A, 0, 10, 1)], kind="info", process="b", at=4.0),
    position(1, 6, at=30.0),
    read((A, 0, 10, 1), (B, 0, 11, 1), (A, 4, 30, 3), (B, 2, 31, 3)),
    position(1, 6, FINAL),
]


@pytest.mark.parametrize("check", txn_verdict.CHECKERS)
def test_no_checker_complains_of_good_transactions(check) -> None:
    assert check(GOOD) == []


def test_an_unknown_transaction_of_which_half_is_there_is_torn() -> None:
    torn = [txn(1, (A, 10), (B, 11), kind="info"), read((A, 0, 10, 1))]
    assert rules(torn_transactions.check(torn)) == ["torn"]
    none = [torn[0], read()]
    assert torn_transactions.check(none) == []


def test_an_acknowledged_transaction_without_one_of_its_sends_is_torn() -> None:
    history = [txn(1, (A, 10, 0), (B, 11, 0)), read((A, 0, 10, 1))]
    assert rules(torn_transactions.check(history)) == ["torn"]


def test_a_failed_transaction_of_which_something_is_there_is_torn() -> None:
    history = [txn(1, (A, 10, 0), kind="fail"), read((A, 0, 10, 1))]
    assert rules(torn_transactions.check(history)) == ["torn"]


def test_a_position_of_a_failed_transaction_is_torn_from_it() -> None:
    failed = txn(1, (A, 10), kind="fail", offsets={"g|t-0": 5})
    assert rules(torn_transactions.check([failed, read(), position(1, 5)])) == ["torn-offset"]
    # Of an unknown one whose sends are not there, too.
    unknown = txn(1, (A, 10), kind="info", offsets={"g|t-0": 5})
    assert rules(torn_transactions.check([unknown, read(), position(1, 5)])) == ["torn-offset"]


def test_a_committed_transaction_without_its_position_is_torn() -> None:
    first = txn(1, (A, 10, 0), offsets={"g|t-0": 6})
    second = txn(2, (A, 20, 1), kind="info", offsets={"g|t-0": 7}, at=2.0)
    seen = read((A, 0, 10, 1), (A, 1, 20, 2))
    history = [first, second, seen, position(1, 6, FINAL)]
    assert rules(torn_transactions.check(history)) == ["torn-offset"]
    # Before the faults have ended an unknown one may still be on its way.
    assert torn_transactions.check([first, second, seen, position(1, 6)]) == []
    gone = [first, read((A, 0, 10, 1)), position(-1, -1)]
    assert rules(torn_transactions.check(gone)) == ["torn-offset"]


@pytest.mark.parametrize("at_offset", [999, 5, -1])
@pytest.mark.parametrize("process", ["a", FINAL])
def test_a_position_is_where_the_transaction_that_it_names_has_put_it(at_offset, process) -> None:
    history = [txn(1, (A, 10, 0), offsets={"g|t-0": 6}), read((A, 0, 10, 1))]
    assert torn_transactions.check([*history, position(1, 6, process)]) == []
    found = torn_transactions.check([*history, position(1, at_offset, process)])
    assert rules(found) == ["torn-offset"]
    assert f"{process} finds {at_offset} of transaction 1, which put it at 6" in found[0].what


def test_a_position_of_a_transaction_that_has_put_nothing_there_is_torn() -> None:
    elsewhere = txn(1, (A, 10, 0), offsets={"g|t-1": 6})
    seen = read((A, 0, 10, 1))
    assert rules(torn_transactions.check([elsewhere, seen, position(1, 6)])) == ["torn-offset"]
    assert rules(torn_transactions.check([elsewhere, seen, position(7, 6)])) == ["torn-offset"]
    # What a consumer commits outside of transactions names none.
    assert torn_transactions.check([elsewhere, seen, position(-1, 6)]) == []


def test_a_value_of_a_failed_transaction_that_was_read_is_an_aborted_read() -> None:
    history = [txn(1, (A, 10, 0), kind="fail"), read((A, 0, 10, 1), process="r")]
    assert rules(aborted_reads.check(history)) == ["G1a"]


def test_a_value_that_nobody_sent_is_a_phantom() -> None:
    assert rules(aborted_reads.check([read((A, 0, 10, 1))])) == ["phantom"]


def test_a_value_in_another_partition_than_it_was_sent_to_is_a_phantom() -> None:
    history = [txn(1, (A, 10, 0)), read((B, 0, 10, 1))]
    assert rules(aborted_reads.check(history)) == ["phantom"]


def test_a_transaction_that_reads_its_own_value_read_it_before_its_end() -> None:
    history = [txn(1, (A, 10, 0), polls=[(A, 0, 10, 1)])]
    assert rules(aborted_reads.check(history)) == ["precommitted-read"]


def test_a_committed_value_below_one_that_was_read_is_lost() -> None:
    history = [txn(1, (A, 10, 0)), txn(2, (A, 20, 2)), read((A, 2, 20, 2), process="r")]
    assert rules(txn_lost.check(history)) == ["lost-write"]


def test_an_acknowledged_value_that_nobody_finds_at_the_end_is_unseen() -> None:
    history = [txn(1, (A, 10, 0)), txn(2, (A, 20, 2)), read((A, 0, 10, 1))]
    assert rules(txn_lost.check(history)) == ["unseen"]
    assert txn_lost.check(history[:2]) == [], "nobody has looked yet"


@pytest.mark.parametrize("left", [(A, 0, 8, 1), (A, 4, 32, 3)], ids=["tail", "head"])
def test_a_value_of_unknown_fate_that_was_read_and_is_gone_is_unseen_and_torn(left) -> None:
    """It was committed, or no reader at read_committed had been shown it; what is behind or before it may be there."""
    _, at, value, number = left
    history = [
        txn(number, (A, value, at)),
        txn(2, (A, 16, 2), (B, 17, 0), kind="info", process="b"),
        read((A, 2, 16, 2), process="r", at=20.0),
        read(left),
    ]
    for line, op in enumerate(history, 1):
        op.line = line
    assert [(each.rule, each.operations) for each in txn_lost.check(history)] == [
        ("unseen", (2, 3))
    ]
    assert rules(torn_transactions.check(history)) == ["torn"]
    # All of it is wanted then, though another half of it is there.
    half = [*history[:3], read(left, (B, 0, 17, 2))]
    assert rules(txn_lost.check(half)) == ["unseen"]
    assert rules(torn_transactions.check(half)) == ["torn"]


@pytest.mark.parametrize("kind", ["info", "fail"])
def test_a_value_that_was_shown_may_not_vanish_whatever_became_of_who_polled_it(kind) -> None:
    """To be shown at read_committed proves a commit; what the poller's own transaction came to says nothing of it."""
    unknown = txn(2, (A, 16, 2), kind="info", process="b")
    poller = txn(3, polls=[(A, 2, 16, 2)], kind=kind, process="r")
    history = [txn(1, (A, 8, 0)), unknown, poller, read((A, 0, 8, 1))]
    assert rules(txn_lost.check(history)) == ["unseen"]
    assert rules(torn_transactions.check(history)) == ["torn"]
    assert rules(txn_lost.check(history[:3])) == ["lost-write"], "8 lies before what was shown"


def test_a_value_that_was_shown_before_its_partition_was_taken_away_may_not_vanish() -> None:
    """What a rebalance takes away from its poller is another's to work on, and had been shown all the same."""
    unknown = txn(2, (A, 16, 2), kind="info", process="b")
    poller = txn(3, process="r")
    poller.shown = [Polled(A, 2, 16, 2)]
    history = [txn(1, (A, 8, 0)), unknown, poller, read((A, 0, 8, 1))]
    assert rules(txn_lost.check(history)) == ["unseen"]
    assert rules(torn_transactions.check(history)) == ["torn"]
    assert polls.check(history) == cycles.check(history) == []


def test_what_was_shown_before_a_rebalance_is_aborted_doubled_or_another_s_as_well() -> None:
    poller = txn(3, process="r")
    poller.shown = [Polled(A, 2, 16, 2)]
    assert rules(aborted_reads.check([txn(2, (A, 16, 2), kind="fail"), poller])) == ["G1a"]
    assert rules(txn_log.check([txn(2, (A, 16, 2)), poller, read((A, 4, 16, 2))])) == ["duplicate"]
    assert rules(txn_log.check([poller, read((A, 2, 17, 2))])) == ["inconsistent-offsets"]


def test_a_value_of_unknown_fate_that_nobody_was_shown_may_be_gone() -> None:
    unknown = txn(2, (A, 16, 2), kind="info", process="b")
    history = [txn(1, (A, 8, 0)), unknown, read((A, 0, 8, 1))]
    assert txn_lost.check(history) == torn_transactions.check(history) == []
    nobody_looked = [unknown, read((A, 2, 16, 2), process="r")]
    assert txn_lost.check(nobody_looked) == torn_transactions.check(nobody_looked) == []


def test_a_position_of_a_transaction_that_was_read_is_no_failed_ones() -> None:
    """What is gone of it is told once, by its values; its position is as it has to be."""
    unknown = txn(1, (A, 10, 0), kind="info", offsets={"g|t-0": 6})
    history = [unknown, read((A, 0, 10, 1), process="r"), read(), position(1, 6, FINAL)]
    assert rules(torn_transactions.check(history)) == ["torn"]
    assert rules(torn_transactions.check([*history[:3], position(-1, -1, FINAL)])) == [
        "torn",
        "torn-offset",
    ]


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    assert rules(txn_log.check([read((A, 0, 10, 1), (A, 3, 10, 1))])) == ["duplicate"]


def test_two_values_at_one_offset_are_inconsistent() -> None:
    history = [read((A, 0, 10, 1), process="r"), read((A, 0, 20, 2))]
    assert rules(txn_log.check(history)) == ["inconsistent-offsets"]


LOG = [(A, 0, 10, 1), (A, 2, 20, 2), (A, 4, 30, 3)]


def test_a_poll_that_leaves_out_a_committed_value_is_a_skip() -> None:
    everything = read(*LOG)
    between = [everything, read(LOG[0], process="r"), read(LOG[2], process="r")]
    assert rules(polls.check(between)) == ["poll-skip"]
    assert rules(polls.check([everything, read(LOG[0], LOG[2], process="r")])) == ["int-poll-skip"]


def test_a_poll_that_goes_back_is_not_monotonic() -> None:
    again = [read(LOG[0], process="r"), read(LOG[0], process="r")]
    assert rules(polls.check([read(*LOG), *again])) == ["nonmonotonic-poll"]
    back = read(LOG[1], LOG[0], process="r")
    assert rules(polls.check([read(*LOG), back])) == ["int-nonmonotonic-poll"]


def test_a_rewind_after_a_failure_and_another_assignment_are_no_anomaly() -> None:
    failed = txn(9, polls=[LOG[0], LOG[1]], kind="fail", process="r")
    assert polls.check([read(*LOG), failed, read(LOG[0], process="r")]) == []
    assigned = Txn("assign", "ok", "r")
    moved = [read(LOG[0], process="r"), assigned, read(LOG[2], process="r")]
    assert polls.check([read(*LOG), *moved]) == []
    assigned.positions = {A: 0}
    assert rules(polls.check([read(*LOG), *moved])) == ["poll-skip"]


def test_two_transactions_that_read_each_other_are_a_cycle() -> None:
    one = txn(1, (A, 10, 0), polls=[(B, 0, 20, 2)])
    other = txn(2, (B, 20, 0), polls=[(A, 0, 10, 1)], process="b")
    assert rules(cycles.check([one, other])) == ["G1c"]


def test_a_transaction_that_reads_the_future_is_a_cycle() -> None:
    early = txn(1, polls=[(A, 0, 20, 2)], process="r", at=0.0)
    early.sends = [Sent(B, 11, 0)]
    late = txn(2, (A, 20, 0), at=5.0)
    assert rules(cycles.check([early, late])) == ["G1c-realtime"]
    late.began_s = 0.5
    assert cycles.check([early, late]) == []


def transfer(number, *sides, kind="ok"):
    return txn(number, *((key, value, offset, amount) for key, value, offset, amount in sides))


def snapshot(positions, *polls):
    op = Txn("snapshot", "ok", "auditor", polls=[Polled(*each) for each in polls])
    op.positions = positions
    return op


DEBIT, CREDIT = ("bank-0", 3, 10, 1, -7), ("bank-1", 5, 11, 1, 7)


def test_a_transfer_of_which_one_side_was_passed_by_makes_money() -> None:
    final = read(DEBIT, CREDIT)
    passed = snapshot({"bank-0": 4, "bank-1": 6}, DEBIT)
    assert rules(bank.check([passed, final])) == ["bank-snapshot"]
    still_behind = snapshot({"bank-0": 4, "bank-1": 5}, DEBIT)
    assert bank.check([still_behind, snapshot({"bank-0": 4, "bank-1": 6}, CREDIT), final]) == []


def test_where_nobody_read_to_the_end_no_side_of_a_transfer_is_said_to_be_missing() -> None:
    """A run that SIGTERM ended was called invalid, for each of a thousand transfers: it is unknown."""
    assert bank.check([snapshot({"bank-0": 4, "bank-1": 6}, DEBIT)]) == []


def test_two_transfers_of_one_teller_that_changed_places_are_out_of_order() -> None:
    """Both are whole and no money was made: one has overtaken the other in both accounts all the same."""
    told = [
        transfer(1, ("bank-0", 10, 2, -7), ("bank-1", 11, 2, 7)),
        transfer(2, ("bank-0", 20, 0, -5), ("bank-1", 21, 0, 5)),
    ]
    seen = [("bank-0", 0, 20, 2, -5), ("bank-0", 2, 10, 1, -7)]
    seen += [("bank-1", 0, 21, 2, 5), ("bank-1", 2, 11, 1, 7)]
    found = txn_verdict.judge([*told, read(*seen)]).anomalies
    assert rules(found) == ["key-order"] * 2 + ["nonmonotonic-send"] * 2
    right = [("bank-0", 0, 10, 1, -7), ("bank-0", 2, 20, 2, -5)]
    right += [("bank-1", 0, 11, 1, 7), ("bank-1", 2, 21, 2, 5)]
    told = [transfer(1, *(each[:1] + each[2:0:-1] + each[4:] for each in right[::2]))]
    told += [transfer(2, *(each[:1] + each[2:0:-1] + each[4:] for each in right[1::2]))]
    assert txn_verdict.judge([*told, read(*right)]).valid


def test_records_of_two_open_transactions_may_lie_between_each_other() -> None:
    """A transaction is seen whole or not at all; that its records are neighbours is said by nobody."""
    told = [txn(1, (A, 10, 0), (A, 11, 2)), txn(2, (A, 20, 1), process="b")]
    seen = read((A, 0, 10, 1), (A, 1, 20, 2), (A, 2, 11, 1))
    assert txn_verdict.judge([*told, seen]).valid


def test_a_half_message_that_is_settled_late_was_sent_when_it_was_sent() -> None:
    """One process may have several open: histories are in the order of ends, and numbers in that of beginnings."""
    settled_late = [txn(2, (A, 20, 2), at=3.0), txn(1, (A, 10, 0), at=1.0)]
    settled_late[1].ended_s = 9.0
    seen = read((A, 0, 10, 1), (A, 2, 20, 2))
    assert txn_verdict.judge([*settled_late, seen]).valid


def test_a_transfer_with_one_side_at_the_end_is_not_zero() -> None:
    assert rules(bank.check([read(DEBIT)])) == ["bank-sum"]


IN = [("in-0", 0, 10, 1), ("in-0", 1, 11, 1)]


def test_an_input_with_two_outputs_is_doubled() -> None:
    twice = read(*IN, ("out-0", 0, 20, 2, 10), ("out-0", 1, 21, 2, 11), ("out-0", 2, 22, 3, 10))
    assert rules(exactly_once.check([twice])) == ["doubled"]


def test_an_input_without_output_is_left_out() -> None:
    assert rules(exactly_once.check([read(*IN, ("out-0", 0, 20, 2, 10))])) == ["left-out"]


def test_outputs_in_another_order_than_their_inputs_are_seen() -> None:
    turned = read(*IN, ("out-0", 0, 20, 2, 11), ("out-0", 1, 21, 2, 10))
    assert rules(exactly_once.check([turned])) == ["out-of-order"]


def test_an_output_of_nothing_is_seen() -> None:
    out = read(IN[0], ("out-0", 0, 20, 2, 10), ("out-0", 1, 21, 2, 99))
    assert rules(exactly_once.check([out])) == ["from-nothing"]
    alone = read(("out-0", 0, 20, 2, 10))
    assert rules(exactly_once.check([alone])) == ["from-nothing"], "nor is there any input"


def test_transactions_survive_their_lines() -> None:
    assert from_lines([to_line(op) for op in GOOD]) == GOOD
