"""Availability while something is broken, and how long it took, on histories of a few operations."""

from fencepost.chaos.checkers.availability import AVAILABLE_S, Availability
from fencepost.chaos.checkers.txn_history import Sent, Txn

A, B = "t0-0", "t0-1"
LATE_S = AVAILABLE_S + 1


def fault(at_s, until_s, nodes, kind="kill", name="1"):
    return {
        "at_s": at_s,
        "until_s": until_s,
        "id": name,
        "fault": kind,
        "nodes": nodes,
        "what": "x",
    }


def send(key, began_s, took_s=0.1, kind="ok"):
    op = Txn("send", kind, "a", 1, sends=[Sent(key, 1)], began_s=began_s, line=7)
    op.ended_s = began_s + took_s
    return op


def looked(faults, *ops, nodes=3):
    seen = Availability(faults, nodes)
    for op in sorted(ops, key=lambda each: each.ended_s):
        seen.see(op)
    return seen


def test_a_key_that_acknowledges_nothing_while_one_of_three_is_away_is_unavailable() -> None:
    ops = [send(A, 11.0), send(B, 11.0, kind="info"), send(B, 11.0 + LATE_S)]
    found = looked([fault(10.0, 99.0, [1])], *ops).anomalies(200.0)
    assert [(each.rule, each.key, each.operations) for each in found] == [("unavailable", B, (7,))]


def test_a_key_that_acknowledges_in_time_is_available_and_the_slowest_says_how_long_it_took() -> (
    None
):
    seen = looked([fault(10.0, 20.0, [1])], send(A, 11.0), send(B, 11.0, 5.0), send(B, 12.0, 3.0))
    assert seen.anomalies(200.0) == []
    assert seen.recovery_ms() == {"p50": 5_000.0, "p99": 5_000.0, "max": 5_000.0}


def test_an_answer_to_what_was_sent_before_the_fault_proves_nothing() -> None:
    seen = looked([fault(10.0, 20.0, [1])], send(A, 9.9, 1.0), send(A, 11.0, kind="info"))
    assert len(seen.anomalies(200.0)) == 1


def test_a_majority_that_is_away_is_asked_for_nothing_and_measured_from_its_return() -> None:
    seen = looked([fault(10.0, 60.0, [1, 2])], send(A, 11.0, kind="fail"), send(A, 61.0, 1.0))
    assert seen.anomalies(200.0) == []
    assert seen.recovery_ms()["max"] == 2_000.0


def test_two_faults_at_a_time_take_the_nodes_of_both_away() -> None:
    both = [fault(10.0, 60.0, [1]), fault(20.0, 40.0, [2], name="2")]
    assert looked(both, send(A, 21.0, kind="info")).anomalies(200.0) == []


def test_nodes_that_are_restarted_one_by_one_are_missed_by_nobody() -> None:
    rolling = fault(10.0, 99.0, [1, 2, 3], "restart")
    assert len(looked([rolling], send(A, 11.0, kind="info")).anomalies(200.0)) == 1
    assert looked([rolling], send(A, 11.0)).anomalies(200.0) == []


def test_a_fault_near_the_end_is_not_judged() -> None:
    assert looked([fault(10.0, None, [1])], send(A, 11.0, kind="info")).anomalies(20.0) == []


def test_the_second_line_of_a_fault_counts() -> None:
    begun, ended = fault(10.0, None, [1, 2]), fault(10.0, 12.0, [1, 2])
    assert looked([begun, ended], send(A, 13.0)).recovery_ms()["max"] == 1_100.0
