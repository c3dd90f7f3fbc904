"""The rules that only the queue workload is judged by, each on the shortest history that breaks it."""

import pytest
from fencepost.chaos.checkers import cycles, polls, queue_verdict, sends, txn_verdict
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line

A, B = "t0-0", "t0-1"


def txn(number, *sent, polls=(), kind="ok", process="a", at=0.0, line=0):
    op = Txn("txn", kind, process, number, began_s=at, ended_s=at + 1, line=line)
    op.sends, op.polls = [Sent(*each) for each in sent], [Polled(*each) for each in polls]
    return op


def read(*polled, process=FINAL, at=50.0):
    some = [Polled(*each) for each in polled]
    return Txn("read", "ok", process, polls=some, began_s=at, ended_s=at)


def rules(anomalies):
    return sorted(each.rule for each in anomalies)


def test_a_send_that_comes_before_an_earlier_one_is_not_monotonic() -> None:
    earlier = [txn(1, (A, 10, 5), line=1), txn(2, (A, 20, 3), at=2.0, line=2)]
    found = sends.check(earlier)
    assert rules(found) == ["key-order", "nonmonotonic-send"]
    assert next(each for each in found if each.rule == "nonmonotonic-send").operations == (1, 2)
    within = txn(1, (A, 10, 5), (A, 11, 3))
    assert rules(sends.check([within])) == ["int-nonmonotonic-send", "key-order"]


def test_sends_in_order_of_several_processes_are_sound() -> None:
    assert sends.check([txn(1, (A, 10, 0)), txn(2, (A, 20, 2), (B, 21, 0), at=2.0)]) == []
    other = [txn(1, (A, 10, 5)), txn(2, (A, 20, 3), process="b")]
    assert sends.check(other) == []


def test_a_send_that_failed_says_nothing_of_order() -> None:
    assert sends.check([txn(1, (A, 10, 5), kind="fail"), txn(2, (A, 20, 3))]) == []


def test_another_value_between_two_of_one_operation_is_told() -> None:
    history = [txn(1, (A, 10, 0), (A, 11, 2)), txn(2, (A, 20, 1), process="b")]
    assert rules(sends.skips(history)) == ["int-send-skip"]
    assert sends.check(history) == []
    assert "int-send-skip" in queue_verdict.ALLOWED


def test_values_of_one_process_that_fall_along_a_key_are_out_of_order() -> None:
    history = [txn(1, (A, 10)), txn(2, (A, 20), at=2.0), read((A, 0, 20, 2), (A, 1, 10, 1))]
    assert "key-order" in rules(sends.check(history))


def test_cycles_are_named_by_the_least_that_they_take() -> None:
    late = txn(3, (A, 30, 0), process="w", at=9.0)
    seer = txn(1, (B, 10, 0), polls=[(A, 0, 30, 3)], process="r", at=0.0)
    assert rules(cycles.check([seer, late])) == ["G1c-realtime"]
    # The writer's own process had read what the seer wrote: no clock is needed.
    middle = txn(2, polls=[(B, 0, 10, 1)], process="w", at=0.5)
    assert rules(cycles.check([seer, middle, late])) == ["G1c-process"]


def test_an_unknown_transaction_is_before_nothing_in_time() -> None:
    unknown = txn(1, (B, 11, 0), polls=[(A, 0, 20, 2)], kind="info", process="r", at=0.0)
    late = txn(2, (A, 20, 0), at=5.0)
    seen = read((B, 0, 11, 1))
    assert cycles.check([unknown, late, seen]) == []
    unknown.type = "ok"
    assert rules(cycles.check([unknown, late, seen])) == ["G1c-realtime"]


def test_two_transactions_whose_records_interleave_are_told() -> None:
    history = [txn(1, (A, 10, 0), (B, 11, 1)), txn(2, (A, 20, 1), (B, 21, 0), process="b")]
    assert rules(cycles.write_cycles(history)) == ["G0"]
    assert cycles.check(history) == []
    apart = [txn(1, (A, 10, 0), (B, 11, 0)), txn(2, (A, 20, 1), (B, 21, 1), process="b", at=2.0)]
    assert cycles.write_cycles(apart) == []


LOG = [(A, 0, 10, 1), (A, 2, 20, 2), (A, 4, 30, 3)]


def test_polls_of_a_key_that_came_or_went_in_the_middle_are_neighbours_too() -> None:
    """What was polled before the group gave it anew is `shown`, and not among them."""
    op = read(LOG[0], LOG[2], process="r")
    op.rebalanced = [A]
    assert rules(polls.check([read(*LOG), op])) == ["int-poll-skip"]
    again = read(*LOG[:2], *LOG[1:], process="r")
    again.rebalanced = [A]
    assert rules(polls.check([read(*LOG), again])) == ["int-nonmonotonic-poll"]
    op.shown, op.polls = op.polls[:1], read(*LOG[1:]).polls
    assert polls.check([read(*LOG), op]) == []


def test_who_subscribes_anew_may_begin_anywhere() -> None:
    between = [
        read(LOG[0], process="r"),
        Txn("subscribe", "ok", "r"),
        read(LOG[2], process="r"),
    ]
    assert polls.check([read(*LOG), *between]) == []
    assert rules(polls.check([read(*LOG), between[0], between[2]])) == ["poll-skip"]


GOOD = [
    txn(1, (A, 10, 0), (B, 11, 0), at=1.0),
    txn(2, (A, 20, 2), kind="fail", at=2.0),
    txn(3, (A, 30), polls=[(A, 0, 10, 1)], kind="info", process="b", at=4.0),
    read((A, 0, 10, 1), (B, 0, 11, 1), (A, 4, 30, 3)),
]


@pytest.mark.parametrize("check", queue_verdict.CHECKERS)
def test_no_checker_of_the_queue_complains_of_a_good_history(check) -> None:
    assert check(GOOD) == []


def judged(tmp_path, history):
    file = tmp_path / "history.jsonl"
    file.write_text("".join(f"{to_line(op)}\n" for op in history))
    return file


def test_a_good_history_is_valid_and_one_without_final_polls_proves_nothing(tmp_path) -> None:
    assert queue_verdict.main([str(judged(tmp_path, GOOD))]) == 0
    assert queue_verdict.main([str(judged(tmp_path, GOOD[:-1]))]) == 2


def test_anomalies_name_the_lines_that_show_them(tmp_path) -> None:
    lost = [txn(1, (A, 10, 0), at=1.0), txn(2, (A, 20, 2), at=3.0), read((A, 2, 20, 2))]
    found = queue_verdict.judge(judged(tmp_path, lost))
    by_name = {each.rule: each.operations for each in found.anomalies}
    assert by_name == {"lost-write": (1, 3), "unseen": (1,), "torn": (1,)}
    assert queue_verdict.main([str(tmp_path / "history.jsonl")]) == 1


@pytest.mark.parametrize("held_bytes", [queue_verdict.HELD_BYTES_MAX, 0], ids=["short", "long"])
def test_what_a_client_could_not_read_is_told_with_its_place(
    tmp_path, monkeypatch, held_bytes
) -> None:
    monkeypatch.setattr(queue_verdict, "HELD_BYTES_MAX", held_bytes)
    damaged = Txn("damaged", "info", "queue-0.1.1", positions={A: 7}, why="no record", line=2)
    history = [txn(1, (A, 10, 5), line=1), damaged, read((A, 5, 10, 1))]
    file = tmp_path / "history.jsonl"
    file.write_text("".join(f"{to_line(op)}\n" for op in history))
    [found] = queue_verdict.judge(file).fatal
    assert (found.rule, found.key, found.operations) == ("damaged", A, (2,))
    assert found.what == "queue-0.1.1 was served at 7: no record"
    assert rules(txn_verdict.judge(history).anomalies) == ["damaged"]
