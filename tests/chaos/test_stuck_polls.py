"""Consumers that get nothing, on histories of a few operations."""

from fencepost.chaos.checkers import queue_verdict
from fencepost.chaos.checkers.away import Excused
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.promised import SLIGHT, Promise, promise_of
from fencepost.chaos.checkers.stuck_polls import LOOKS_MIN, StuckPolls
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line

A, B = "t0-0", "t0-1"


def op(f, process, at_s, *, polls=(), sends=(), kind="ok", **more):
    made = Txn(f, kind, process, int(at_s * 10), began_s=at_s, line=int(at_s), **more)
    made.ended_s = at_s + 0.5
    made.polls = [Polled(key, offset, offset) for key, offset in polls]
    made.sends = [Sent(key, offset, offset) for key, offset in sends]
    return made


def sends(key, from_s, to_s):
    """A record a second, its offset is the second."""
    return [op("send", "s", float(at), sends=[(key, at)]) for at in range(from_s, to_s)]


def reads(process, from_s, to_s, *keys, f="read", **more):
    """One a second, each of what was acknowledged a second ago of these keys."""
    return [
        op(f, process, at + 0.2, polls=[(key, at - 1) for key in keys], **more)
        for at in range(from_s, to_s)
    ]


def assign(process, at_s, *keys):
    return op("assign", process, at_s, positions=dict.fromkeys(keys, 0))


def subscribe(process, at_s, *keys):
    return op("subscribe", process, at_s, rebalanced=list(keys))


LONG = Promise(session_s=16.0)  # so that 30 s are promised: as many reads
assert LONG.shown_s == 30.0


def stuck(*ops, faults=(), healed_s=None, promise=LONG):
    seen = StuckPolls(Excused(faults, 3, healed_s), promise)
    found = []
    for each in sorted(ops, key=lambda each: each.ended_s):
        found += seen.see(each)
    return [(each.key, each.what) for each in found]


def keys(*ops, **named):
    return [key for key, _ in stuck(*ops, **named)]


def test_polls_that_are_all_empty_beside_sends_that_are_acknowledged_are_stuck(tmp_path) -> None:
    """50 reads of nothing, 50 sends, and a final pass by a new consumer, which finds all of them."""
    file = tmp_path / "history.jsonl"
    last = op("read", FINAL, 200.0, polls=[(A, at) for at in range(100, 150)])
    ops = [*sends(A, 100, 150), *reads("r", 100, 150), last]
    file.write_text("".join(f"{to_line(each)}\n" for each in sorted(ops, key=lambda e: e.ended_s)))
    judged = queue_verdict.judge(file)
    assert {(each.rule, each.key) for each in judged.anomalies} == {("stuck-poll", "all")}
    assert judged.counts["records read"] == 0
    assert not judged.proves_something


def test_who_is_given_a_key_and_shown_nothing_of_it_is_stuck_though_others_are_served() -> None:
    ops = [
        assign("a", 99.0, A, B),
        assign("b", 99.0, A, B),
        *sends(A, 100, 150),
        *sends(B, 100, 150),
    ]
    assert keys(*ops, *reads("a", 100, 150, A, B), *reads("b", 100, 150, A, B)) == []
    found = stuck(*ops, *reads("a", 100, 150, A, B), *reads("b", 100, 150, A))
    assert found == [
        (
            B,
            "b was shown nothing of it from 100.5 s to 130.7 s in 30 operations, though 130 was acknowledged",
        )
    ]


def test_who_goes_on_after_a_while_is_not_stuck() -> None:
    ops = [assign("a", 99.0, A), *sends(A, 100, 180)]
    late = [*reads("a", 100, 129), *reads("a", 129, 180, A)]
    assert keys(*ops, *late) == []


def test_who_does_not_look_is_not_stuck() -> None:
    """It hangs in a transaction, or what it begins fails before it has polled."""
    ops = [
        assign("a", 99.0, A),
        assign("b", 99.0, A),
        *sends(A, 100, 150),
        *reads("b", 100, 150, A),
    ]
    assert keys(*ops, *reads("a", 100, 105), *reads("a", 140, 143)) == []
    failed = reads("a", 100, 150, f="txn")
    for each in failed:
        each.type = "fail"
    assert keys(*ops, *failed) == []
    assert keys(*ops, *reads("a", 100, 150, f="txn")) == [A]


def test_who_leaves_a_key_or_has_crashed_is_owed_nothing_of_it() -> None:
    ops = [assign("b", 99.0, A), *sends(A, 100, 150), *reads("b", 100, 150, A)]
    empty = reads("a", 100, 150)
    assert keys(*ops, assign("a", 99.0, A), assign("a", 120.0, B), *empty) == []
    crash = op("crash", "a", 120.0, kind="info")
    assert keys(*ops, assign("a", 99.0, A), crash, *empty) == []


def test_what_was_acknowledged_before_a_key_was_given_is_owed_from_then_on() -> None:
    ops = [*sends(A, 10, 15), assign("a", 100.0, A), *reads("a", 101, 150)]
    other = [assign("b", 9.0, A), *reads("b", 10, 20, A)]
    [(key, what)] = stuck(*ops, *other)
    assert key == A and "from 100.5 s" in what and "14 was acknowledged" in what


def test_a_majority_that_is_away_is_no_consumers_matter() -> None:
    away = {
        "at_s": 101.0,
        "until_s": 140.0,
        "id": "1",
        "fault": "kill",
        "nodes": [1, 2],
        "what": "x",
    }
    ops = [assign("a", 99.0, A), *sends(A, 100, 102), *reads("a", 100, 160)]
    assert keys(*ops, faults=[away]) == []
    assert keys(*ops, *reads("a", 160, 172), faults=[away]) == [A]


def test_nobody_is_stuck_behind_transactions_while_a_node_is_too_slow_for_them(tmp_path) -> None:
    """One is given up after six seconds; to write that down and to tell all of its partitions takes longer by that node, and the
    next one may follow it."""
    file = tmp_path / "history.jsonl"
    ops = [assign("a", 99.0, A), *sends(A, 100, 102), *reads("a", 100, 132)]
    file.write_text("".join(f"{to_line(each)}\n" for each in sorted(ops, key=lambda e: e.ended_s)))
    slow = {"at_s": 105.0, "until_s": 130.0, "id": "1", "fault": "slow", "nodes": [1], "what": "x"}

    def judged(form: str) -> set[str]:
        found = queue_verdict.judge(file, [{**slow, "form": form}]).anomalies
        return {each.rule for each in found}

    assert "stuck-poll" not in judged("")
    assert "stuck-poll" in judged(SLIGHT)


def test_members_of_a_group_are_shown_together_what_they_subscribe_to() -> None:
    ops = [
        subscribe("a", 99.0, A, B),
        subscribe("b", 99.0, A),
        *sends(A, 100, 170),
        *sends(B, 100, 170),
    ]
    assert keys(*ops, *reads("a", 100, 170, B), *reads("b", 100, 170, A)) == []
    assert keys(*ops, *reads("a", 100, 170, B), *reads("b", 100, 170)) == [A]
    assert keys(*ops, *reads("a", 100, 170, A), *reads("b", 100, 170, A)) == [B]
    short = reads("a", 100, 155, B), reads("b", 100, 155)
    assert keys(*ops, *(each for some in short for each in some)) == [], "groups have 60 s"


def join(process, at_s, *keys, group="lists", generation=1):
    return op("join", process, at_s, rebalanced=list(keys), positions={group: generation})


def test_a_group_that_is_shown_nothing_of_what_its_members_were_given_is_stuck() -> None:
    """As the simulator's clients write it down; a member's name has its life."""
    ops = [*sends(A, 100, 175), *sends(B, 100, 175)]
    ops += [op("assign", name, 98.0) for name in ("m-0.1", "m-1.1")]
    ops += [join("m-0.1", 98.5, A), join("m-1.1", 98.5, B)]
    served = [*reads("m-0.1", 100, 175, A), *reads("m-1.1", 100, 175, B, f="txn")]
    assert keys(*ops, *served) == []
    assert keys(*ops, *served[75:], *reads("m-0.1", 100, 175)) == [A]
    in_turn = [join("m-1.1", 140.0, A, generation=2), join("m-0.1", 140.0, B, generation=2)]
    late = [*reads("m-0.1", 100, 140), *reads("m-1.1", 141, 175, A)]
    late += [*reads("m-1.1", 100, 140, B), *reads("m-0.1", 141, 175, B)]
    assert keys(*ops, *in_turn, *late) == [], "who has it next is shown it in time"
    assert keys(*ops, *in_turn, *late[:40], *late[74:], *reads("m-1.1", 141, 175)) == [A]


def test_a_key_that_goes_from_member_to_member_is_owed_to_their_group_all_the_while() -> None:
    """One is killed every ten seconds, and each of its successors is given A anew; in between nobody has it."""
    ops = [*sends(A, 100, 175), *reads("b", 100, 175, A), join("m-0.1", 99.0, A)]
    for life in range(2, 9):
        at_s = 90.0 + 10 * life
        ops += [op("crash", f"m-0.{life - 1}", at_s - 3, kind="info")]
        ops += [
            join(f"m-0.{life}", at_s, A, generation=life),
            *reads(f"m-0.{life}", int(at_s), int(at_s) + 7),
        ]
    assert keys(*ops) == [A]
    served = [*ops, *reads("m-0.5", 143, 147, A)]
    assert keys(*served) == []


def test_who_had_a_members_place_before_looks_no_more_and_who_was_just_given_a_key_has_time() -> (
    None
):
    ops = [*sends(A, 100, 175), *reads("b", 100, 175, A)]
    ops += [join("m-0.1", 99.0, A), join("m-0.2", 130.0, B, generation=2)]
    assert keys(*ops, *reads("m-0.1", 130, 175)) == [], "another process has its place"
    late = [op("read", "m-1.1", 165.0 + at / 10) for at in range(50)]
    ops += [join("m-1.1", 164.0, A, generation=3)]
    assert keys(*ops, *late) == [], "fifty looks in five seconds"
    assert keys(*ops, *reads("m-1.1", 165, 176)) == [A]


def test_groups_of_ids_and_of_members_are_asked_each_for_itself() -> None:
    ops = [*sends(A, 100, 175), *sends(B, 100, 175)]
    ops += [join("w-0.1", 99.0, A, group="pipeline-ids", generation=-1)]
    ops += [join("m-1.1", 99.0, B, group="pipeline")]
    [(key, what)] = stuck(*ops, *reads("w-0.1", 100, 175), *reads("m-1.1", 100, 175, B))
    assert key == A and what.startswith("the group pipeline-ids was shown nothing")


def test_what_a_member_was_shown_of_unknown_fate_may_be_worked_off() -> None:
    """It is killed in the transaction of the last record, which was committed: nothing is left to be shown."""
    ops = [*sends(A, 100, 102), join("m-0.1", 99.0, A), join("m-0.2", 110.0, A, generation=2)]
    last = op("txn", "m-0.1", 102.0, polls=[(A, 101)], kind="info")
    assert keys(*ops, last, *reads("m-0.2", 111, 175)) == []
    last.type = "fail"
    assert keys(*ops, last, *reads("m-0.2", 111, 175)) == [A]


def test_who_reads_all_accounts_is_owed_all_that_it_has_named() -> None:
    ops = [*sends(A, 100, 150), *sends(B, 100, 150)]
    both, one = {A: 0, B: 0}, reads("a", 101, 150, A, f="snapshot")
    first = op("snapshot", "a", 99.0, positions=both)
    assert keys(*ops, first, *reads("a", 101, 150, A, B, f="snapshot")) == []
    assert keys(*ops, first, *one) == [B]


def test_how_long_it_may_take_is_what_the_system_promises_and_an_open_transaction_longer() -> None:
    ops = [assign("a", 99.0, A), assign("b", 99.0, A), *sends(A, 100, 150)]
    ops += [*reads("a", 100, 119), *reads("b", 100, 150, A)]
    assert Promise().shown_s == 17.0
    assert promise_of("kafka", ()).shown_s == 23.0
    assert keys(*ops, promise=Promise()) == [A]
    assert keys(*ops, promise=promise_of("kafka", ())) == []


def test_what_all_lacked_at_some_moment_is_waited_for() -> None:
    seen = StuckPolls(Excused((), 3, None))

    def look(*ops):
        for each in sorted(ops, key=lambda each: each.ended_s):
            assert list(seen.see(each)) == []

    look(assign("a", 99.0, A), *sends(A, 100, 105))
    assert seen.all_shown(98.0)
    assert not seen.all_shown(105.0)
    look(*sends(A, 106, 107), *reads("a", 106, 107))
    assert not seen.all_shown(105.0)
    look(*reads("a", 108, 109, A))
    assert seen.all_shown(105.0)
    look(*sends(A, 110, 115))
    assert seen.all_shown(105.0), "what came later is not asked for"


def test_what_had_ended_by_then_and_is_seen_later_is_waited_for() -> None:
    """As long as the verdict on the whole history says that it was not asked for."""
    healed_s, end_s = 105.0, 110.0
    seen = StuckPolls(Excused((), 3, None))

    def look(*ops):
        for each in ops:
            assert list(seen.see(each)) == []

    look(assign("a", 99.0, A))
    assert seen.all_shown(healed_s), "of what nobody has seen yet nothing can be known"
    look(*sends(A, 104, 105))
    look(*(op("read", "a", 106.0 + at / 10) for at in range(LOOKS_MIN)))
    assert seen.unanswered(healed_s, end_s)
    assert not seen.all_shown(healed_s)
    look(*reads("a", 108, 110, A))
    assert not seen.unanswered(healed_s, end_s)
    assert seen.all_shown(healed_s)
