"""Runs in which nothing was broken because nothing was done."""

from dataclasses import replace

import pytest
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from fencepost.chaos.checkers.worked import MUST, Worked, counted, lacking
from fencepost.chaos.runs.judging import TRANSACTIONS_LOOP, judge
from test_queue_judging import run_of

BOTH = ("assign", "subscribe")


def txn(process: str, number: int, sends=(), polls=(), offsets=None) -> Txn:
    op = Txn("txn", "ok", process, number, list(sends), list(polls), offsets or {})
    op.began_s, op.ended_s = number / 10, number / 10 + 0.05
    return op


def join(process: str, generation: int) -> Txn:
    op = Txn("join", "ok", process, rebalanced=["in-1"], began_s=0.1, ended_s=0.1)
    op.positions = {"pipeline": generation}
    return op


FED = txn("feeder-0.1", 1, [Sent("in-0", 10, 0), Sent("in-1", 11, 0)])
BY_IDS = txn(
    "worker-1.1",
    2,
    [Sent("out-0", 20, 0, 10)],
    [Polled("in-0", 0, 10, 1)],
    {"pipeline-ids|in-0": 1},
)
BY_GROUP = txn(
    "member-2.1", 3, [Sent("out-1", 30, 0, 11)], [Polled("in-1", 0, 11, 1)], {"pipeline|in-1": 1}
)
JOINED = [join("member-2.1", 1), join("member-2.1", 2)]
SEEN = Txn("read", "ok", FINAL, began_s=9.0, ended_s=9.5)
SEEN.polls = [
    Polled("in-0", 0, 10, 1),
    Polled("in-1", 0, 11, 1),
    Polled("out-0", 0, 20, 2, 10),
    Polled("out-1", 0, 30, 3, 11),
]


def told(*ops: Txn) -> Txn:
    """What groups have committed, asked in the end."""
    places = {place: (op.number, at) for op in ops for place, at in op.offsets.items()}
    found = Txn("position", "ok", FINAL, began_s=9.6, ended_s=9.6)
    found.writers = {place: number for place, (number, _) in places.items()}
    found.offsets = {place: at for place, (_, at) in places.items()}
    return found


TOLD = told(BY_IDS, BY_GROUP)
WHOLE = [FED, BY_IDS, BY_GROUP, *JOINED, TOLD, SEEN]


def verdict(path, *ops, workload="pipeline", via=BOTH, **more):
    found = judge(
        run_of(path, *ops, shown=(), workload=workload, options={"via": via}, left="", **more),
        lambda _: None,
    )
    return found["verdict"], found["why"]


def test_a_pipeline_that_did_all_that_it_is_there_for_is_valid(tmp_path) -> None:
    said, why = verdict(tmp_path / "run", *WHOLE)
    assert said == "valid", why


def without(*gone: Txn) -> list[Txn]:
    """Neither they nor what they have written."""
    values = {sent.value for op in gone for sent in op.sends}
    seen = Txn("read", "ok", FINAL, began_s=9.0, ended_s=9.5)
    seen.polls = [each for each in SEEN.polls if each.value not in values]
    kept = [op for op in WHOLE if op not in gone and op not in (SEEN, TOLD)]
    return [*kept, told(*kept), seen]


def test_a_pipeline_that_has_transformed_nothing_proves_nothing(tmp_path) -> None:
    """Its inputs are left out, too; here nobody saw to it that they were worked off."""
    ops = without(BY_IDS, BY_GROUP)
    folder = run_of(
        tmp_path / "run", *ops, workload="pipeline", options={"via": BOTH}, left=None, shown=()
    )
    found = judge(folder, lambda _: None)
    assert found["verdict"] == "unknown", found["why"]
    assert "kept apart by ids transformed nothing" in found["why"]
    assert "whose workers are a group transformed nothing" in found["why"]
    assert "nobody has looked" in found["why"]


def test_what_was_left_though_all_was_to_be_worked_off_is_invalid(tmp_path) -> None:
    said, why = verdict(tmp_path / "run", *without(BY_IDS))
    assert said == "invalid" and "1 left-out" in why


def test_a_group_that_was_never_rebalanced_proves_nothing(tmp_path) -> None:
    said, why = verdict(tmp_path / "run", *without(JOINED[1]))
    assert (said, why) == ("unknown", "no group was rebalanced")
    # Who does without groups is not asked for it.
    counts = dict.fromkeys((name for name, _ in MUST["pipeline"]), 1) | {"rebalances": 0}
    assert lacking("pipeline", ["assign"], counts) == []
    assert lacking("pipeline", ["subscribe"], counts) == ["no group was rebalanced"]


@pytest.mark.parametrize("workload", list(MUST))
def test_each_thing_that_a_workload_is_there_for_is_asked_for(workload) -> None:
    counts = dict.fromkeys((name for name, _ in MUST[workload]), 1)
    assert lacking(workload, BOTH, counts) == []
    for name, sentence in MUST[workload]:
        assert lacking(workload, BOTH, counts | {name: 0}) == [sentence]


def test_an_output_that_was_made_twice_is_doubled(tmp_path) -> None:
    again = txn("member-4.1", 4, [Sent("out-1", 40, 2, 11)])
    seen = Txn("read", "ok", FINAL, polls=[*SEEN.polls, Polled("out-1", 2, 40, 4, 11)])
    seen.began_s, seen.ended_s = 9.0, 9.5
    said, why = verdict(tmp_path / "run", *WHOLE[:-1], again, seen)
    assert said == "invalid" and "1 doubled" in why


def test_a_client_that_was_told_what_must_never_be_makes_a_run_invalid(tmp_path) -> None:
    told = Txn("die", "info", "member-2.1", why="produce: unknown_error", began_s=5.0, ended_s=5.0)
    said, why = verdict(tmp_path / "run", *WHOLE[:-1], told, SEEN)
    assert said == "invalid" and "1 dead-client" in why


def test_generations_count_and_what_is_read_at_the_end_does_not() -> None:
    worked = Worked()
    for op in [*WHOLE, join("member-4.1", 2), join("member-4.1", 5)]:
        worked.see(op)
    assert worked.counts("pipeline") == {
        "inputs fed": 2,
        "transformed by ids": 1,
        "transformed in a group": 1,
        "rebalances": 2,
    }


def test_a_kill_loop_whose_group_was_never_given_anything_proves_nothing_of_it() -> None:
    """What its members send is committed, and who assigns itself partitions is shown what there is."""
    given, sent = Polled("list-0", 0, 10, 1), Sent("list-0", 10, 0)
    alone = txn("appender-3.1.1", 2, [], [given], {"appender-3.1.1|list-0": 1})
    member = txn("subscriber-6.1.1", 3, [], [given], {"lists|list-0": 1})
    sends = [txn(op.process, op.number + 8, [sent]) for op in (alone, member)]

    def lacks(*ops: Txn) -> list[str]:
        return lacking(TRANSACTIONS_LOOP, (), counted(TRANSACTIONS_LOOP, [*sends, *ops]))

    assert lacks(alone, member) == []
    assert lacks(alone) == ["no member of a group has committed what it was given"]
    assert lacks(member) == ["nobody who assigns itself partitions has committed what it polled"]
    for lacking_one in ({"polls": []}, {"offsets": {}}, {"type": "info"}):
        assert len(lacks(alone, replace(member, **lacking_one))) == 1


def test_a_shop_that_hears_again_of_its_own_half_message_is_nobody_who_was_asked() -> None:
    """Its answer and what it asked beside it both say how that ended."""
    worked = Worked()
    for name in ("shop-1.1", "shop-1.1", "checker-2.1", "checker-2.1"):
        worked.see(Txn("told", "ok", name, told={"shop-1.1-7": "committed"}))
        by_checkers = worked.counts("added")["half messages ended by who was asked"]
        assert by_checkers == name.startswith("checker")
