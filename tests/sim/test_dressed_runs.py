"""Some seeds have records with headers, times and codecs: readers compare them, and the other seeds are what they were."""

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.transaction_clients import DRESSED, DRESSED_ODDS, dressed_of
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.txn_dressed import PLAIN


@pytest.mark.slow
def test_looks_are_compared_also_of_what_was_compacted() -> None:
    plan = Plan(
        campaign="transactions", seed=1, seconds=4.0, nodes=3, workloads=("compacted", DRESSED)
    )
    outcome = run_plan(plan)
    assert not outcome.failure, outcome.failure
    assert outcome.counts["looks compared"] > 100


def is_dressed(seed: int, *workloads: str) -> bool:
    plan = Plan(campaign="transactions", seed=seed, workloads=workloads)
    with World(seed) as world:
        return dressed_of(plan, world.stream, lambda _: None) is not PLAIN


def test_it_is_in_a_part_of_the_seeds_and_in_those_that_ask_for_it() -> None:
    drawn = sum(is_dressed(seed) for seed in range(300))
    assert 0.7 * DRESSED_ODDS < drawn / 300 < 1.4 * DRESSED_ODDS
    assert not any(is_dressed(seed, "bank") for seed in range(20))
    assert is_dressed(1, "bank", DRESSED)
