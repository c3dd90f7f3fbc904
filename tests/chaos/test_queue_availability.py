"""Availability while something is broken, and how long it took, on histories of a few operations."""

import random

import pytest
from fencepost.chaos.checkers.availability import NO_END, ON_PURPOSE, TRIED_S, Availability
from fencepost.chaos.checkers.away import AVAILABLE_S
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


def test_what_an_operation_did_before_it_sent_to_a_key_was_no_try_of_it() -> None:
    """It had polled for 10 s, of the node that was paused, and sent then: the key was called unavailable, and nobody had tried."""
    long = send(A, 11.0, LATE_S)
    ops = [send(B, 11.0), long]
    assert [each.key for each in looked([fault(10.0, 99.0, [1])], *ops).anomalies(200.0)] == [A]
    long.sent_s = {A: long.ended_s - 0.3}
    assert looked([fault(10.0, 99.0, [1])], *ops).anomalies(200.0) == []
    long.sent_s = {A: 11.1}
    assert [each.key for each in looked([fault(10.0, 99.0, [1])], *ops).anomalies(200.0)] == [A]


def test_a_key_that_acknowledges_nothing_while_one_of_three_is_away_is_unavailable() -> None:
    ops = [send(A, 11.0), send(B, 11.0, kind="info"), send(B, 11.0 + LATE_S)]
    found = looked([fault(10.0, 99.0, [1])], *ops).anomalies(200.0)
    assert [(each.rule, each.key, each.operations) for each in found] == [("unavailable", B, (7,))]


def test_a_key_that_acknowledges_in_time_is_available_and_the_slowest_says_how_long_it_took() -> (
    None
):
    seen = looked([fault(10.0, 20.0, [1])], send(A, 11.0), send(B, 11.0, 5.0), send(B, 12.0, 3.0))
    assert seen.anomalies(200.0) == []
    assert seen.recovery_ms() == {"p50": 5_000.0, "p99": 5_000.0, "max": 5_000.0, "not served": 0}


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


# -- what nobody may leave unasked -----------------------------------------------------------------


def tries(key, from_s, to_s, *, kind="info", every_s=1.0, took_s=0.9, why=""):
    found, at_s = [], from_s
    while at_s < to_s:
        found.append(send(key, at_s, took_s, kind))
        found[-1].why = why
        at_s += every_s
    return found


def unavailable(seen, end_s):
    return sorted({each.key for each in seen.anomalies(end_s) if each.rule == "unavailable"})


def test_who_is_never_served_again_after_a_majority_was_away_is_unavailable() -> None:
    ops = [*tries(A, 90.0, 100.0, kind="ok"), *tries(A, 110.0, 410.0)]
    assert unavailable(looked([fault(100.0, 108.0, [1, 2, 3])], *ops), 411.0) == [A]


def test_after_the_last_fault_every_key_in_use_must_acknowledge() -> None:
    served, not_served = tries(A, 90.0, 140.0, kind="ok"), tries(B, 90.0, 140.0)
    last = fault(99.0, 100.0, [1, 2], "disk-full")

    def seen(*ops):
        made = Availability([last], 3, healed_s=100.0)
        for op in sorted(ops, key=lambda each: each.ended_s):
            made.see(op)
        return made

    assert not seen(*served, *not_served).all_served
    assert unavailable(seen(*served, *not_served), 140.0) == [B]
    assert seen(*served).all_served
    assert unavailable(seen(*served), 140.0) == []
    assert not seen().all_served, "nobody was"


def test_a_load_that_falls_silent_is_unavailable_though_nobody_tries_any_more() -> None:
    """Clients that were killed, and whose successors can't begin anything, write nothing down."""
    ops = tries(A, 50.0, 99.0, kind="ok")
    found = looked([fault(100.0, 108.0, [1])], *ops).anomalies(200.0)
    assert {(each.rule, each.key, each.operations) for each in found} == {
        ("unavailable", "all", ())
    }
    assert looked([fault(100.0, 108.0, [1])], *ops[:5]).anomalies(200.0) == [], "nor did it before"


def test_an_operation_counts_from_when_it_began_however_late_it_ends() -> None:
    kill = fault(100.0, 108.0, [1])
    for took_s in (50.0, 100.0, 190.0):
        ops = [send(A, 100.5, took_s, "info") for _ in range(5)]
        assert unavailable(looked([kill], *ops), 300.0) == [A]
        # Begun before, and never answered in time.
        for kind in ("info", "ok"):
            assert unavailable(looked([kill], send(A, 99.9, took_s, kind)), 300.0) == [A]


def test_a_hunt_is_a_fault_like_others() -> None:
    hunt = fault(100.0, 120.0, [1, 2], "hunt")
    assert unavailable(looked([hunt], *tries(A, 101.0, 200.0)), 200.0) == [A]
    in_time = looked([hunt], *tries(A, 101.0, 120.0), *tries(A, 145.0, 200.0, kind="ok"))
    assert unavailable(in_time, 200.0) == []


def test_a_fault_that_hinders_a_node_is_no_excuse_for_what_takes_another_away() -> None:
    kill = fault(100.0, 108.0, [2], name="2")
    for kind in ("clock", "slow", "drain"):
        hindered = fault(90.0, 190.0, [1], kind)
        assert unavailable(looked([hindered, kill], *tries(A, 99.0, 140.0)), 140.0) == [A]
    everywhere = fault(90.0, 190.0, [1, 2, 3], "slow")
    assert unavailable(looked([everywhere, kill], *tries(A, 99.0, 190.0)), 190.0) == []


def test_disks_that_are_slower_by_milliseconds_are_no_excuse_on_however_many_nodes() -> None:
    """Nodes with slower ones than that, or with such as do not come back, may be missed as if they were away."""
    before = tries(A, 50.0, 99.0, kind="ok")
    kill = fault(100.0, 160.0, [2], name="2")

    def judged(form, nodes, *others, from_s=165.0):
        slow = fault(100.0, 170.0, nodes, "disk-slow") | {"form": form}
        ops = [*before, *tries(A, 100.1, from_s), *tries(A, from_s, 170.0, kind="ok")]
        return unavailable(looked([slow, *others], *ops), 165.0)

    assert judged("slight", [1, 2, 3]) == judged("slight", [1], kill) == [A]
    assert judged("slight", [1, 2, 3], from_s=108.0) == judged("slight", [1], kill, from_s=108.0)
    assert judged("slight", [1, 2, 3], from_s=108.0) == []
    # Nobody is served in time whose transactions are slow, and begin when a leader is found again.
    assert judged("slight", [1], kill, from_s=116.0) == []
    assert judged("slight", [1, 2, 3], kill, from_s=119.0) == [A]
    assert judged("slight", [2], kill, from_s=112.0) == [A], "it is away"
    for form in ("", "stuck"):
        assert judged(form, [1, 2, 3]) == judged(form, [1], kill) == []


def test_a_fault_without_an_end_excuses_no_more_than_its_own_nodes() -> None:
    for_ever, kill = fault(50.0, None, [1]), fault(100.0, 108.0, [2], name="2")
    seen = looked([for_ever, kill], *tries(A, 20.0, 100.0, kind="ok"), *tries(A, 100.0, 200.0))
    assert sorted({each.from_s for each in seen.recoveries}) == [50.0, 108.0]
    assert unavailable(seen, 200.0) == [A]


def test_times_in_which_too_many_are_away_are_no_part_of_what_is_owed() -> None:
    """Each time leaders have to be found again; what is left of 30 s goes on where it was."""
    kill = fault(100.0, 104.0, [1])
    majorities = [fault(at, at + 5.0, [1, 2], name=str(at)) for at in (115.0, 140.0, 165.0)]
    ops = tries(A, 100.5, 300.0)
    assert unavailable(looked([kill, *majorities], *ops), 159.0) == []
    # After 10 s of grace each time: from 110 to 115, from 130 to 140, from 155 on.
    assert unavailable(looked([kill, *majorities], *ops), 160.0) == [A]


def test_of_five_nodes_two_may_hold_two_of_three_copies() -> None:
    both = fault(100.0, 150.0, [1, 2])
    assert unavailable(looked([both], *tries(A, 100.0, 150.0), nodes=5), 150.0) == []
    assert unavailable(looked([both], *tries(A, 100.0, 190.0), nodes=5), 190.0) == [A]
    assert unavailable(looked([fault(100.0, 150.0, [1])], *tries(A, 100.0, 150.0), nodes=5), 150.0)


# -- what says nothing of brokers ------------------------------------------------------------------


def test_a_key_that_nobody_wants_any_more_need_not_acknowledge() -> None:
    """Keys are left for new ones; the last that was sent to one may have failed."""
    ops = [send(A, 101.0, kind="fail"), *tries(B, 101.0, 200.0, kind="ok")]
    assert unavailable(looked([fault(100.0, 108.0, [1])], *ops), 200.0) == []
    assert unavailable(looked([fault(100.0, 108.0, [1])], *ops, *tries(A, 131.0, 140.0)), 200.0)


def test_a_client_that_changed_its_mind_or_was_killed_says_nothing_of_brokers() -> None:
    kill = fault(100.0, 108.0, [1])
    for why in (ON_PURPOSE, NO_END):
        own = tries(A, 101.0, 140.0, why=why)
        assert unavailable(looked([kill], *own, *tries(B, 101.0, 140.0, kind="ok")), 140.0) == []
        waited = tries(A, 101.0, 140.0, took_s=12.0, why=why)
        assert unavailable(looked([kill], *waited), 140.0) == [A]


def test_a_client_that_slept_in_its_transaction_says_nothing_of_brokers_but_what_it_waited_beside() -> (
    None
):
    """The only writer of a key slept for 5.9 s, was killed, and slept for 10.5 s of the 6 that its transaction may last."""
    kill = fault(100.0, 108.0, [1])
    for slept_s, expected in ((0.0, [A]), (10.4, []), (0.4, [A])):
        op = send(A, 101.0, 10.5, "fail")
        op.why, op.slept_s = "offsets: invalid_producer_epoch", slept_s
        assert unavailable(looked([kill], op, send(A, 150.0)), 160.0) == expected


def test_an_answer_that_came_after_all_is_no_try() -> None:
    ops = [send(A, 99.9, 0.2), *tries(B, 101.0, 200.0, kind="ok")]
    assert unavailable(looked([fault(100.0, 108.0, [1])], *ops), 200.0) == []


# -- figures ---------------------------------------------------------------------------------------


def test_who_is_served_late_is_part_of_the_figures_and_who_never_is_is_counted() -> None:
    faults = [fault(10.0, 20.0, [1]), fault(200.0, 210.0, [1], name="2")]
    ops = [*tries(A, 11.0, 50.0), *tries(A, 52.0, 199.0, kind="ok"), *tries(A, 201.0, 260.0)]
    figures = looked(faults, *ops).recovery_ms()
    assert figures == {"p50": 42_900.0, "p99": 42_900.0, "max": 42_900.0, "not served": 1}
    assert looked(faults[1:], *ops).recovery_ms() == {"not served": 1}
    assert looked(faults[1:], *tries(A, 201.0, 215.0)).recovery_ms() == {}, "it had no time"


def test_the_time_of_another_outage_is_no_part_of_what_recovery_took() -> None:
    faults = [fault(100.0, 104.0, [1]), fault(105.0, 120.0, [1, 2], name="2")]
    seen = looked(faults, *tries(A, 101.0, 124.0), *tries(A, 124.0, 160.0, kind="ok", took_s=1.0))
    assert seen.recovery_ms()["max"] == 10_000.0


def lived(seed):
    """Forty faults, one in four of which takes a majority away, and keys that come, are refused, and go."""
    rng = random.Random(seed)
    faults, ops = [], []
    for number in range(40):
        at_s = 100.0 * number + rng.uniform(0, 50)
        nodes = [1, 2] if rng.random() < 0.25 else [1]
        until_s = at_s + rng.choice((5.0, 45.0))
        faults.append(fault(at_s, until_s, nodes, name=str(number)))
        is_refused = rng.random() < 0.3
        for _ in range(100):
            began_s = 100.0 * number + rng.uniform(0, 100)
            kind = "fail" if is_refused and at_s < began_s < until_s + 20 else "ok"
            key = f"t{number // 2 + rng.randrange(8)}-0"
            ops.append(send(key, began_s, rng.choice((0.1, 4.0, 25.0)), kind))
    return faults, ops


@pytest.mark.slow
def test_what_is_forgotten_of_faults_that_are_long_over_changes_nothing(monkeypatch) -> None:
    told = set()
    for seed in range(4):
        faults, ops = lived(seed)
        some = looked(faults, *ops)
        with monkeypatch.context() as patch:
            patch.setattr(Availability, "_sweep", lambda *_: None)
            whole = looked(faults, *ops)
        for end_s in (2_000.0, 4_200.0):
            assert some.anomalies(end_s) == whole.anomalies(end_s), f"seed {seed}"
            assert some.recovery_ms(end_s) == whole.recovery_ms(end_s), f"seed {seed}"
            told.update(each.rule for each in some.anomalies(end_s))
        assert some.all_served == whole.all_served
        settled = [each for each in some.recoveries if each.is_settled]
        assert len(settled) > 30
        for each in settled:
            in_time = [key for key, at_s in each.served_s.items() if at_s <= each.due_s]
            assert len(in_time) <= 2, "the first and the slowest"
    assert told == {"unavailable"}


def test_who_is_served_long_after_all_was_forgotten_of_the_others_is_part_of_the_figures() -> None:
    ops = [
        send(B, 5.0),
        send(A, 11.0),
        send(B, 11.0, kind="info"),
        *(send(A, at) for at in (500.0, 900.0)),
    ]
    seen = looked([fault(10.0, 20.0, [1])], *ops, send(B, 1_000.0, 10.0))
    assert all(each.is_settled for each in seen.recoveries)
    assert seen.recovery_ms(2_000.0)["max"] == 1_000_000.0
    assert [each.key for each in seen.anomalies(2_000.0)] == [B]


def test_who_was_served_in_time_though_nobody_tried_at_once_is_not_forgotten_as_silent() -> None:
    lively = [send(A, at / 2) for at in range(19)]
    late = [send(A, 10.0 + TRIED_S + 1.0), send(A, 500.0), send(A, 900.0)]
    seen = looked([fault(10.0, 12.0, [1])], *lively, *late)
    assert all(each.is_settled for each in seen.recoveries)
    assert seen.anomalies(2_000.0) == []


def test_what_was_asked_for_when_the_load_ended_is_unanswered_if_it_was_wanted_for_long() -> None:
    def unanswered(*ops, end_s=45.0):
        seen = Availability((), 3, 20.0)
        for op in sorted(ops, key=lambda each: each.ended_s):
            seen.see(op)
        return seen.unanswered(end_s)

    goes_on = [send(B, float(at)) for at in range(21, 45)]
    in_vain = [send(A, float(at), kind="info") for at in range(21, 45)]
    [said] = unanswered(*goes_on, *in_vain)
    assert said.startswith("nothing of t0-0 was acknowledged from 20.0 s to 45.0 s, after all")
    assert unanswered(*goes_on, *in_vain, end_s=51.0) == [], "it is unavailable then"
    assert unanswered(*goes_on, *in_vain[:5]) == [], "nobody wanted it any more"
    assert unanswered(*goes_on, *in_vain[-5:]) == [], "nobody had wanted it before"
    assert unanswered(*goes_on, send(A, 40.0, 20.0, kind="info")) == [], "nor for long by then"
    assert unanswered(*goes_on, send(A, 30.0, 20.0, kind="info")) == [said]
    assert unanswered(*goes_on, *in_vain, send(A, 44.0)) == []
    lively = [send(A, float(at)) for at in range(20)]
    assert unanswered(*lively) == [
        "nothing at all was acknowledged from 20.0 s to 45.0 s, after all faults were over: the load ended before it was asked for"
    ]
