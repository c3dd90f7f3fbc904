"""Producers that sleep while what they wrote is deleted, and replicas that never had it: that it happens, and that it is seen."""

import pytest
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.campaigns.planted_table import plan_for
from fencepost.chaos.planted.bugs import all_bugs
from fencepost.chaos.sim.cluster import ClusterRun
from fencepost.chaos.sim.deleting import DELETIONS, SLEEPERS, SLEEPERS_NODES
from fencepost.chaos.sim.plan import Plan

TOLD_OF_NOBODY = "copies-are-told-of-nobody"


def run(seed: int) -> Outcome:
    return run_plan(Plan(campaign="cluster", seed=seed, seconds=5.0, workloads=(SLEEPERS,)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_what_is_sent_again_after_a_sleep_is_written_once(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.failure, outcome.failure
    assert outcome.counts["slept"] > 3
    assert outcome.counts["deleted"] > 50


@pytest.mark.slow
def test_a_replica_that_is_told_of_nobody_is_seen() -> None:
    bug = all_bugs()[TOLD_OF_NOBODY]
    outcomes = (run_plan(plan_for(bug, seed)) for seed in range(bug.seeds))
    seen = next((each for each in outcomes if each.failure), None)
    assert seen is not None, f"none of {bug.seeds} seeds shows it"
    assert seen.kind in bug.seen_by, seen.failure


@pytest.mark.parametrize(
    ("workloads", "sleepers", "is_deleting"),
    [((SLEEPERS,), 3, True), ((DELETIONS,), 0, True), (("light",), 0, False)],
)
def test_they_are_where_they_are_asked_for(
    workloads: tuple[str, ...], sleepers: int, is_deleting: bool
) -> None:
    made = ClusterRun(Plan(campaign="cluster", seed=1, workloads=workloads))
    made.world.close()
    assert (made.deleting is not None) is is_deleting
    assert len([] if made.deleting is None else made.deleting.sleepers) == sleepers
    if sleepers:
        assert len(made.nodes.ids) in SLEEPERS_NODES


def test_some_of_the_seeds_that_delete_have_them() -> None:
    found = []
    for seed in range(100):
        made = ClusterRun(Plan(campaign="cluster", seed=seed))
        made.world.close()
        if made.deleting is not None:
            found.append(bool(made.deleting.sleepers))
    assert {True, False} == set(found)
