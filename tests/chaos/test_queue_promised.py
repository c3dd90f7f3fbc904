"""Progress while something is broken, and not only after it: what each system promises, on histories of a few operations."""

import pytest
from fencepost.chaos.checkers.availability import NO_END, ON_PURPOSE, Availability
from fencepost.chaos.checkers.busy import Machine
from fencepost.chaos.checkers.promised import Promise, promise_of
from fencepost.chaos.checkers.txn_history import Sent, Txn

A, B = "t0-0", "t0-1"
KAFKA = promise_of("kafka", ())


def fault(at_s, until_s, nodes, kind="cut", form="", name="1"):
    made = {"at_s": at_s, "until_s": until_s, "id": name, "fault": kind, "nodes": nodes}
    return made | {"what": "x", "form": form}


def send(key, began_s, took_s=0.1, kind="ok", why=""):
    op = Txn("send", kind, "a", 1, sends=[Sent(key, 1)], began_s=began_s, line=7, why=why)
    op.ended_s = began_s + took_s
    return op


def tries(key, from_s, to_s, kind="info", took_s=0.9):
    return [send(key, float(at), took_s, kind) for at in range(int(from_s), int(to_s))]


def served(key, *stretches):
    return [op for begin, end in stretches for op in tries(key, begin, end, "ok")]


def looked(faults, *ops, promise=None, machine=None):
    seen = Availability(faults, 3, promise=promise or Promise(), machine=machine or Machine(()))
    for op in sorted(ops, key=lambda each: each.ended_s):
        seen.see(op)
    return [(each.key, each.what) for each in seen.anomalies(300.0)]


def keys(*arguments, **named):
    return [key for key, _ in looked(*arguments, **named)]


def test_a_cut_of_one_of_three_in_which_nothing_is_acknowledged_is_unavailable_though_it_ends_soon() -> (
    None
):
    """15 s of it, and 13 s after it: nobody was asked before 30 s were over, so no fault ever was."""
    ops = [*served(A, (50, 100), (128, 200)), *tries(A, 100, 128)]
    [(key, what)] = looked([fault(100.0, 115.0, [1])], *ops)
    assert key == A
    assert what == "nothing was acknowledged from 100.0 s to 110.0 s, while it went on: x"


def test_who_is_served_while_the_fault_goes_on_is_available() -> None:
    ops = [*served(A, (50, 100), (108, 200)), *tries(A, 100, 108)]
    assert keys([fault(100.0, 115.0, [1])], *ops) == []


def test_each_key_counts_not_only_the_first_that_is_served() -> None:
    ops = [*served(A, (50, 200)), *served(B, (50, 100), (117, 200)), *tries(B, 100, 117)]
    assert keys([fault(100.0, 115.0, [1])], *ops) == [B]


def test_a_fault_that_is_over_sooner_than_anybody_promises_is_asked_after_its_end() -> None:
    ops = [*served(A, (50, 100), (118, 200)), *tries(A, 100, 118)]
    assert keys([fault(100.0, 109.0, [1])], *ops) == []


def test_kafka_is_asked_by_its_own_session() -> None:
    def unserved_until(at):
        ops = [*served(A, (50, 100), (at, 200)), *tries(A, 100, at)]
        return keys([fault(100.0, 150.0, [1])], *ops, promise=KAFKA)

    assert KAFKA.session_s == 9.0
    assert unserved_until(115) == []
    assert unserved_until(117) == [A]


def test_settings_of_the_run_are_what_it_promises() -> None:
    settings = ("broker.session.timeout.ms=6000", "replica.lag.time.max.ms=1500", "x=y")
    assert promise_of("processes", settings) == Promise(session_s=6.0, lag_s=1.5)
    assert promise_of("containers", ()) == Promise()


@pytest.mark.parametrize(
    "kind", ["kill", "pause", "disk-full", "disk-fail", "clock", "voters", "epochs", "zombie"]
)
def test_every_kind_that_leaves_a_majority_is_asked_while_it_goes_on(kind) -> None:
    ops = [*served(A, (50, 100), (140, 200)), *tries(A, 100, 140)]
    nodes = [] if kind in ("epochs", "zombie") else [1]
    assert keys([fault(100.0, 150.0, nodes, kind)], *ops) == [A]


@pytest.mark.parametrize(("kind", "form"), [("cut", "partial"), ("disk-slow", "stuck")])
def test_a_copy_that_only_lags_is_waited_for_as_long_as_the_setting_says(kind, form) -> None:
    def unserved_until(at):
        ops = [*served(A, (50, 100), (at, 200)), *tries(A, 100, at)]
        return keys([fault(100.0, 155.0, [1], kind, form)], *ops)

    assert unserved_until(139) == []
    assert unserved_until(141) == [A]


def stuck(at_s, until_s, name="1"):
    return fault(at_s, until_s, [1], "disk-slow", "stuck", name)


def test_of_one_disk_that_hangs_its_own_time_counts() -> None:
    """30 s from its beginning, whether it hangs for 3 s of them or for 13."""
    for until_s in (103.0, 113.0):
        for served_s, found in ((128, []), (132, [A])):
            ops = [*served(A, (50, 100), (served_s, 200)), *tries(A, 100, served_s)]
            assert keys([stuck(100.0, until_s)], *ops) == found


@pytest.mark.parametrize("before", [stuck(100.0, 113.0), fault(100.0, 101.0, [2], "kill")])
def test_while_a_disk_that_hangs_is_waited_for_no_other_fault_is_asked_about(before) -> None:
    """It had hung twice within 30 s, for 13 s and for 12: there was no time left to serve anybody in."""
    faults = [before, stuck(119.0, 131.0, "2")]
    for served_s, found in ((140, []), (165, [A])):
        ops = [*served(A, (50, 100), (served_s, 200)), *tries(A, 100, served_s)]
        assert sorted({*keys(faults, *ops)}) == found


def test_who_tried_only_while_a_disk_hung_was_refused_by_nobody() -> None:
    """He waited as was promised, and began anew, for reasons of his own, when the time was over."""
    only = [*served(A, (50, 100), (150, 200)), *served(B, (50, 200)), *tries(A, 101, 112)]
    assert keys([stuck(100.0, 113.0)], *only) == []
    assert {*keys([stuck(100.0, 113.0)], *only, *tries(A, 113, 115))} == {A}


def test_nodes_that_are_cut_off_and_hear_clients_may_be_asked_once_more() -> None:
    """They say that they lead, and whoever believes it waits for as long as a client waits."""
    ops = [*served(A, (50, 100), (114, 200)), *tries(A, 100, 114)]
    assert keys([fault(100.0, 125.0, [1], "cut", "stale")], *ops) == []
    assert keys([fault(100.0, 125.0, [1], "cut", "")], *ops) == [A]
    late = [*served(A, (50, 100), (116, 200)), *tries(A, 100, 116)]
    assert keys([fault(100.0, 125.0, [1], "cut", "stale")], *late) == [A]


def test_of_the_forms_of_older_runs_the_words_tell() -> None:
    ops = [*served(A, (50, 100), (112, 200)), *tries(A, 100, 112)]

    def said(what):
        return keys([fault(100.0, 111.0, [1]) | {"what": what, "form": None}], *ops)

    assert said("node 1 and node 3 don't reach each other (leaders)") == []
    assert said("of nodes [1, 3, 2] each hears one of the two others only (one)") == []
    assert said("cut node 1 off from nodes 2, 3; clients reach all (leaders)") == [A]


def test_a_ring_of_ways_leaves_no_two_nodes_that_can_ask_each_other() -> None:
    ops = [*served(A, (50, 100), (165, 200)), *tries(A, 100, 165)]
    assert keys([fault(100.0, 150.0, [1], "cut", "ring")], *ops) == []
    assert keys([fault(100.0, 150.0, [1], "cut", "ring")], *ops, *tries(A, 165, 190)) == []
    late = [*served(A, (50, 100), (182, 200)), *tries(A, 100, 182)]
    assert keys([fault(100.0, 150.0, [1], "cut", "ring")], *late) == [A], "30 s after its end"


def test_a_network_that_is_slower_than_a_transaction_may_last_is_asked_after_its_end() -> None:
    ops = [*served(A, (50, 100), (152, 200)), *tries(A, 100, 152)]
    assert keys([fault(100.0, 150.0, [1], "slow", "")], *ops) == []
    assert keys([fault(100.0, 150.0, [1], "slow", "slight")], *ops) == [A]


# -- what says nothing of brokers ------------------------------------------------------------------


def test_a_key_that_nobody_wanted_for_half_of_the_time_says_nothing() -> None:
    """One try in the first second, and none before the time was over, is what a load of few operations does."""
    cut = fault(100.0, 115.0, [1])
    ops = served(A, (50, 200))
    assert keys([cut], *ops, send(B, 100.1, kind="info"), *served(B, (111, 200))) == []
    assert keys([cut], *ops, send(B, 104.9, 4.0, "info"), *served(B, (111, 200))) == []
    waited = send(B, 100.1, 11.0, "info")
    assert keys([cut], *ops, waited, *served(B, (112, 200))) == [B], "one that waited all the while"


def test_a_client_that_was_killed_at_once_says_nothing() -> None:
    cut = fault(100.0, 115.0, [1])
    ops = [*served(A, (50, 200)), *served(B, (112, 200))]
    killed = [send(B, float(at), 0.5, "info", NO_END) for at in range(100, 111)]
    assert keys([cut], *ops, *killed) == []


def test_who_had_asked_a_node_just_before_it_fell_silent_tries_from_when_it_begins_anew() -> None:
    """A job of `added`, seed 49005: its writer waits for a paused node until it is fenced, its driver for the same one."""
    pause = fault(100.0, 112.0, [1], "pause")
    others = served(A, (50, 200))
    caught = send(B, 99.9, 6.9, "fail", "PRODUCER_FENCED")
    assert keys([pause], *others, caught, send(B, 106.9, 4.4), *served(B, (112, 200))) == []
    hung = send(B, 99.9, 12.0, "fail", "PRODUCER_FENCED")
    assert keys([pause], *others, hung, *served(B, (112, 200))) == [B]
    soon = send(B, 102.0, 6.9, "fail", "PRODUCER_FENCED")
    assert keys([pause], *others, soon, send(B, 109.0, 4.4), *served(B, (114, 200))) == [B]


def test_what_was_rolled_back_as_its_sender_said_was_refused_to_nobody() -> None:
    pause = fault(100.0, 112.0, [1], "pause")
    others = [*served(A, (50, 200)), *served(B, (112, 200))]
    why = f"{ON_PURPOSE}: half message rolled_back"
    assert keys([pause], *others, send(B, 101.0, 8.5, "fail", why)) == []
    assert keys([pause], *others, send(B, 101.0, 8.5, "fail", "half message unknown")) == [B]


def test_a_majority_that_goes_meanwhile_takes_the_question_with_it() -> None:
    both = [fault(100.0, 150.0, [1]), fault(104.0, 141.0, [2], "kill", name="2")]
    ops = [*served(A, (50, 100), (150, 200)), *tries(A, 100, 150)]
    assert keys(both, *ops) == []
    late = [*served(A, (50, 100), (172, 200)), *tries(A, 100, 172)]
    assert A in keys(both, *late)


def test_a_load_that_falls_silent_while_a_fault_goes_on_is_unavailable() -> None:
    often = [*(send(A, at / 10) for at in range(500, 999)), *served(A, (125, 200))]
    assert keys([fault(100.0, 150.0, [1])], *often) == ["all"]


# -- a busy machine --------------------------------------------------------------------------------


def test_a_busy_machine_is_given_as_much_more_time_as_it_has_more_to_do() -> None:
    """Four processes a core are twice what a run makes by itself: 10 s become 20 s, and no more."""
    busy = Machine([(at, 4.0) for at in range(90, 130)])

    def unserved_until(at):
        ops = [*served(A, (50, 100), (at, 200)), *tries(A, 100, at)]
        return keys([fault(100.0, 150.0, [1])], *ops, machine=busy)

    assert unserved_until(119) == []
    assert unserved_until(121) == [A]


def test_how_many_faults_were_asked_while_they_went_on_is_counted() -> None:
    """A run on a machine with ten processes a core is excused from most; whoever reads it has to see that."""
    faults = [fault(100.0, 115.0, [1]), fault(150.0, 195.0, [2], name="2")]
    for load, asked in ((1.0, 2), (4.0, 1), (10.0, 0)):
        seen = Availability(faults, 3, machine=Machine([(0.0, load)]))
        assert seen.asked_meanwhile(300.0) == asked
    assert Availability(faults, 3).asked_meanwhile(155.0) == 1, "the load ended before"


def test_a_machine_that_was_busy_at_another_time_is_given_nothing() -> None:
    busy = Machine([(0.0, 1.0), (50.0, 20.0), (60.0, 1.9), (100.0, 1.0)])
    ops = [*served(A, (50, 100), (112, 200)), *tries(A, 100, 112)]
    assert keys([fault(100.0, 150.0, [1])], *ops, machine=busy) == [A]


def test_time_on_a_busy_machine_is_counted_both_ways_alike() -> None:
    machine = Machine([(10.0, 4.0), (20.0, 8.0), (40.0, 1.0)])
    assert machine.between(0.0, 50.0) == 10.0 + 5.0 + 5.0 + 10.0
    for begin in (0.0, 5.0, 12.0, 35.0, 60.0):
        for seconds in (0.0, 3.0, 30.0):
            assert machine.between(begin, machine.later(begin, seconds)) == pytest.approx(seconds)
    assert Machine(()).later(3.0, 4.0) == 7.0


def test_to_a_pipeline_as_much_more_is_granted_as_its_only_writer_may_sleep() -> None:
    """A worker slept before its commit, aborted on purpose, and nobody else writes that output: while a node was drained."""
    drained = fault(5.0, 19.0, [2], "drain")
    ops = [*served(A, (0, 4), (18, 40)), *tries(A, 4, 18)]
    pipeline = promise_of("containers", (), "pipeline")
    assert keys([drained], *ops, promise=promise_of("containers", (), "queue")) == [A]
    assert keys([drained], *ops, promise=pipeline) == []
    late = [*served(A, (0, 4), (34, 60)), *tries(A, 4, 34)]
    assert keys([fault(5.0, 33.0, [2], "drain")], *late, promise=pipeline) == [A]
