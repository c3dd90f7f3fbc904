"""Somebody asks for the offsets of times in a part of the seeds: it happens, and the others are what they were."""

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.cluster import TIMES, TIMES_ODDS, noted_of
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World


@pytest.mark.slow
def test_times_are_sought_and_looks_compared() -> None:
    plan = Plan(campaign="cluster", seed=1, seconds=4.0, nodes=3, workloads=(TIMES,))
    outcome = run_plan(plan)
    assert not outcome.failure, outcome.failure
    assert outcome.counts["times sought"] > 20
    assert outcome.counts["looks compared"] > 100


def is_there(seed: int, *workloads: str) -> bool:
    plan = Plan(campaign="cluster", seed=seed, workloads=workloads)
    with World(seed) as world:
        return noted_of(plan, world.stream, lambda _: None) is not None


def test_it_is_in_a_part_of_the_seeds_and_in_those_that_ask_for_it() -> None:
    drawn = sum(is_there(seed) for seed in range(300))
    assert 0.7 * TIMES_ODDS < drawn / 300 < 1.4 * TIMES_ODDS
    assert not any(is_there(seed, "light") for seed in range(20))
    assert is_there(1, TIMES)
