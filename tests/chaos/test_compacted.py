"""The checker of compacted tables sees each of its anomalies in a history of a few operations, and nothing in a good one."""

import pytest
from fencepost.chaos.checkers import compacted, txn_verdict
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn

A, B = "table-0", "table-1"
X, Y = 1, 2  # keys


def txn(number, *sends, kind="ok", at=0.0):
    """Sends: (partition, value, offset, key), the key below zero for a tombstone."""
    sent = [Sent(*each) for each in sends]
    return Txn("txn", kind, "a", number, sent, began_s=at, ended_s=at + 1)


def read(key, position, *polls, process=FINAL, at=50.0):
    """Polls: (offset, value, writer, key)."""
    op = Txn("read", "ok", process, polls=[Polled(key, *each) for each in polls], ended_s=at)
    op.positions = {key: position}
    return op


def begins(key, start, process=FINAL):
    op = Txn("assign", "ok", process)
    op.positions = {key: start}
    return op


def rules(history):
    return sorted(each.rule for each in compacted.check(history))


GOOD = [
    txn(1, (A, 10, 0, X), (A, 11, 1, Y), (B, 12, 0, X)),
    read(A, 3, (0, 10, 1, X), (1, 11, 1, Y), process="r", at=2.0),
    txn(2, (A, 20, 3, X), kind="fail", at=2.0),
    txn(3, (A, 30, 5, X), (B, 31, None, -X), kind="info", at=4.0),
    txn(4, (A, 40, 7, -Y), at=6.0),
    read(A, 9, (5, 30, 3, X), (7, 40, 4, -Y), process="r", at=8.0),
    read(A, 9, (5, 30, 3, X)),
    read(B, 3),
]


def test_what_was_overtaken_is_owed_by_nobody() -> None:
    assert compacted.check(GOOD) == []


@pytest.mark.parametrize("check", txn_verdict.OF_TABLES)
def test_no_checker_of_tables_complains_of_good_ones(check) -> None:
    assert check(GOOD) == []


def test_a_key_of_which_nothing_is_left_is_lost() -> None:
    assert rules([txn(1, (A, 10, 0, X)), read(A, 2)]) == ["key-lost", "poll-skip"]


def test_a_key_that_is_at_an_older_value_has_gone_back() -> None:
    history = [txn(1, (A, 10, 0, X)), txn(2, (A, 20, 2, X)), read(A, 4, (0, 10, 1, X))]
    assert rules(history) == ["key-back", "poll-skip"]


def test_a_key_that_was_deleted_and_is_there_again_has_gone_back() -> None:
    """The tombstone went before what it had deleted."""
    history = [txn(1, (A, 10, 0, X)), txn(2, (A, 20, 2, -X)), read(A, 4, (0, 10, 1, X))]
    assert rules(history) == ["key-back"]
    assert rules([*history[:2], read(A, 4)]) == []


def test_a_key_is_not_older_at_the_end_than_a_reader_has_seen_it() -> None:
    """Nobody was told what became of the second one; its reader knows."""
    unknown = txn(2, (A, 20, None, X), kind="info")
    shown = read(A, 4, (0, 10, 1, X), (2, 20, 2, X), process="r")
    history = [txn(1, (A, 10, 0, X)), unknown, shown, read(A, 4, (0, 10, 1, X))]
    assert rules(history) == ["key-back", "poll-skip"]
    assert rules([history[0], unknown, history[3]]) == []


def test_a_transaction_of_which_a_key_is_there_and_another_is_not_is_torn() -> None:
    both = txn(1, (A, 10, 0, X), (B, 11, 0, Y), kind="info")
    assert "torn" in rules([both, read(A, 2, (0, 10, 1, X)), read(B, 2)])
    overtaken = txn(2, (B, 20, 2, Y), at=2.0)
    assert rules([both, overtaken, read(A, 2, (0, 10, 1, X)), read(B, 4, (2, 20, 2, Y))]) == []
    assert rules([both, read(A, 2), read(B, 2)]) == [], "none of it was ever seen"


def test_a_record_without_a_known_place_is_owed_all_the_same() -> None:
    both = txn(1, (A, 10, 0, X), (B, 11, None, Y))
    assert "torn" in rules([both, read(A, 2, (0, 10, 1, X)), read(B, 2)])


def test_a_reader_that_is_not_shown_the_newest_of_a_key_has_passed_it_by() -> None:
    first, second = txn(1, (A, 10, 0, X)), txn(2, (A, 20, 2, X), at=9.0)
    early, late = read(A, 2, process="r", at=5.0), read(A, 2, process="r", at=9.5)
    end = read(A, 4, (2, 20, 2, X))
    assert rules([first, early, second, end]) == ["poll-skip"], "nothing had overtaken it by then"
    assert rules([first, second, late, end]) == []


def test_a_reader_that_is_not_shown_a_tombstone_was_away_for_long() -> None:
    assert rules([txn(1, (A, 10, 0, -X)), read(A, 2, process="r"), read(A, 2)]) == []


def test_a_reader_goes_on() -> None:
    one = txn(1, (A, 10, 0, X), (A, 11, 1, X))
    back = read(A, 3, (1, 11, 1, X), (0, 10, 1, X))
    assert rules([one, back]) == ["nonmonotonic-poll"]
    again = [read(A, 3, (0, 10, 1, X), (1, 11, 1, X)), read(A, 3, (1, 11, 1, X))]
    assert rules([one, *again]) == ["nonmonotonic-poll"]
    assert rules([one, again[0], begins(A, 1), again[1]]) == ["nonmonotonic-poll"] * 2


def test_what_is_below_the_beginning_of_a_log_is_owed_by_nobody() -> None:
    history = [txn(1, (A, 10, 0, X), (A, 11, 1, Y)), begins(A, 1), read(A, 3, (1, 11, 1, Y))]
    assert rules(history) == []
    assert "key-lost" in rules([history[0], history[2]])
    assert "key-lost" in rules([*history[:2], read(A, 3)])


def test_an_aborted_value_that_became_the_newest_is_an_aborted_read() -> None:
    history = [txn(1, (A, 10, 0, X)), txn(2, (A, 20, 2, X), kind="fail")]
    verdict = txn_verdict.judge([*history, read(A, 4, (2, 20, 2, X))], txn_verdict.OF_TABLES)
    assert "G1a" in {each.rule for each in verdict.anomalies}


def test_a_tombstone_that_is_to_stay_is_there_at_the_end() -> None:
    history = [txn(1, (A, 10, 0, X)), txn(2, (A, 20, 2, -X))]
    stayed = read(A, 4, (2, 20, 2, -X))
    assert compacted.tombstones([*history, stayed]) == []
    gone = compacted.tombstones([*history, read(A, 4)])
    assert [each.rule for each in gone] == ["tombstone-lost"]
    assert compacted.tombstones([*history, txn(3, (A, 30, 4, X)), read(A, 6, (4, 30, 3, X))]) == []
    assert compacted.tombstones([*history, begins(A, 3), read(A, 4)]) == []


def test_what_a_killed_client_had_no_acknowledgement_of_is_no_excuse() -> None:
    """It was never committed; a tombstone of unknown place that is behind everything for ever excused its key for ever."""
    set_and_gone = [
        txn(2, (A, 20, 50, X), (A, 21, 51, Y), at=20.0),
        read(A, 53, (51, 21, 2, Y), process="r", at=30.0),
        read(A, 53, (51, 21, 2, Y)),
    ]
    alone = ["key-lost", "poll-skip", "poll-skip", "torn"]
    assert rules(set_and_gone) == alone
    killed = txn(1, (A, 10, None, -X), kind="info", at=20.0)
    assert rules([killed, *set_and_gone]) == alone
    killed.untold = [10]  # it had one, which named no place
    assert rules([killed, *set_and_gone]) == []
    long_ago = txn(1, (A, 10, None, -X), kind="info", at=1.0)
    long_ago.untold = [10]
    assert rules([long_ago, *set_and_gone]) == alone
