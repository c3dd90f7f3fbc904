"""Consumers read from replicas that follow in a part of the seeds: it happens, and the others are what they were."""

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.followers import FOLLOWERS, SEEDS_ODDS, follower_odds
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World


@pytest.mark.slow
@pytest.mark.parametrize(
    ("campaign", "workloads"),
    [("cluster", (FOLLOWERS,)), ("transactions", ("bank", "append", FOLLOWERS))],
)
def test_followers_are_read_and_show_what_all_others_do(
    campaign: str, workloads: tuple[str, ...]
) -> None:
    outcome = run_plan(Plan(campaign=campaign, seed=1, seconds=4.0, nodes=3, workloads=workloads))
    assert not outcome.failure, outcome.failure
    assert outcome.counts["followers read"] > 30


def odds(seed: int, *workloads: str) -> float:
    with World(seed) as world:
        plan = Plan(campaign="cluster", seed=seed, workloads=workloads)
        return follower_odds(plan, world.stream)


def test_it_is_in_a_part_of_the_seeds_and_in_those_that_ask_for_it() -> None:
    drawn = sum(odds(seed) > 0 for seed in range(300))
    assert 0.7 * SEEDS_ODDS < drawn / 300 < 1.4 * SEEDS_ODDS
    assert not any(odds(seed, "light") for seed in range(20))
    assert odds(1, FOLLOWERS)
