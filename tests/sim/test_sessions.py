"""Somebody fetches in sessions in a part of the seeds: it happens, and the others are what they were."""

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.sessions import SESSIONS, SESSIONS_ODDS, has_sessions
from fencepost.chaos.sim.world import World


@pytest.mark.slow
def test_what_did_not_change_is_left_out_and_all_is_read() -> None:
    plan = Plan(campaign="cluster", seed=1, seconds=4.0, nodes=3, workloads=(SESSIONS,))
    outcome = run_plan(plan)
    assert not outcome.failure, outcome.failure
    assert outcome.counts["answers in sessions"] > 50
    assert outcome.counts["partitions left out"] > 20


def is_there(seed: int, *workloads: str) -> bool:
    with World(seed) as world:
        return has_sessions(Plan(campaign="cluster", seed=seed, workloads=workloads), world.stream)


def test_it_is_in_a_part_of_the_seeds_and_in_those_that_ask_for_it() -> None:
    drawn = sum(is_there(seed) for seed in range(300))
    assert 0.7 * SESSIONS_ODDS < drawn / 300 < 1.4 * SESSIONS_ODDS
    assert not any(is_there(seed, "light") for seed in range(20))
    assert is_there(1, SESSIONS)
