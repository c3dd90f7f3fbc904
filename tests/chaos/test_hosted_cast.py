"""Who plays what, who stops first, and what is left to be worked off."""

import argparse

import pytest
from fencepost.chaos.report.rounds import left_out, turns
from fencepost.chaos.report.struck import Struck
from fencepost.chaos.runs.plan import Plan
from fencepost.chaos.runs.plan_words import NOT_IN, WORKLOADS
from fencepost.chaos.runs.workloads import WORKLOADS as TABLE
from fencepost.chaos.workloads.hosted import parser, whose
from fencepost.chaos.workloads.hosted_cast import CASTS, LAST
from fencepost.chaos.workloads.hosted_roles import ROLES

BOTH = ("assign", "subscribe")


def test_every_workload_that_can_be_named_is_in_the_table_and_the_other_way_round() -> None:
    assert set(WORKLOADS) == set(TABLE)


@pytest.mark.parametrize("workload", list(CASTS))
@pytest.mark.parametrize("clients", [3, 5, 12])
def test_whatever_a_place_has_can_be_made_and_nothing_is_lacking(workload, clients) -> None:
    cast = CASTS[workload]
    assert cast.lacks(clients, BOTH) == []
    for place in range(clients):
        roles = cast.of(place, BOTH)
        assert roles and set(roles) <= set(ROLES)
        # A place stops as a whole, before or after the others.
        assert set(roles) <= LAST or LAST.isdisjoint(roles)


def test_every_input_is_worked_off_by_one_way_and_drained_in_its_group() -> None:
    plan = Plan(workload="pipeline", keys=5)
    wanted = TABLE["pipeline"].to_drain(plan)["groups"]
    assert wanted == {
        "pipeline-ids": [("in", 0), ("in", 2), ("in", 4)],
        "pipeline": [("in", 1), ("in", 3)],
    }
    only = Plan(workload="pipeline", keys=2, via=("assign",))
    assert TABLE["pipeline"].to_drain(only)["groups"] == {"pipeline-ids": [("in", 0), ("in", 1)]}


def test_half_messages_are_waited_for_though_no_group_consumes() -> None:
    assert TABLE["added"].to_drain(Plan(workload="added")) == {"groups": {}, "halves": True}
    assert TABLE["append"].to_drain(Plan(workload="append")) == {}


def chosen(*more: str) -> argparse.Namespace:
    words = ["--workload", "pipeline", "--bootstrap", "h:1", "--life", "1", "--notes", "x"]
    return parser().parse_args([*words, *more])


def test_a_twin_plays_the_part_of_whoever_has_its_id() -> None:
    assert whose(chosen("--slot", "2")) == (2, ("member",))
    assert whose(chosen("--slot", "63", "--transactional-id", "worker-1")) == (1, ("worker",))
    assert whose(chosen("--slot", "63", "--transactional-id", "append-4.2.7")) == (4, ("append",))


def test_rounds_leave_out_by_name_what_a_target_can_never_have() -> None:
    known = {"processes": ["kill", "zombie", "cut"], "kafka": ["kill", "zombie", "cut"]}
    some = turns(known, ["added", "pipeline"], 100, Struck(), loops=False)
    seen = [next(some).words for _ in range(60)]
    on = {
        (words[words.index("--workload") + 1], words[words.index("--target") + 1]) for words in seen
    }
    assert on == {("added", "processes"), ("pipeline", "processes"), ("pipeline", "kafka")}
    for words in seen:
        workload = words[words.index("--workload") + 1]
        faults = words[words.index("--faults") + 1].split(",")
        assert not [each for each in faults if (workload, each) in NOT_IN]
    said = left_out(["added", "pipeline"], ["processes", "kafka"])
    assert any("added is not run on kafka" in each for each in said)
    assert any("added is run without zombie and epochs" in each for each in said)
    assert left_out(["pipeline"], ["kafka"]) == []


def test_a_target_that_can_have_no_workload_of_a_turn_is_passed_by() -> None:
    some = turns({"kafka": ["kill"]}, ["added", "queue"], 0, Struck(), loops=False)
    assert {next(some).words[4] for _ in range(6)} == {"queue"}
