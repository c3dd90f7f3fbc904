"""Somebody fetches in sessions in a part of the seeds: it happens, and the others are what they were."""

from collections.abc import Callable

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.cluster_nodes import ClusterNodes
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


def wait(waiting: Callable[[float], list[str]]) -> float:
    """`waiting` is told the time; the time when nobody waited any more."""
    with World(1) as world:
        nodes, time = ClusterNodes(world, 1), world.loop.time
        world.run(
            nodes.until_none_waits("of fetch sessions", lambda: waiting(time()), within_s=10.0)
        )
        return time()


def test_a_long_way_to_go_takes_the_time_that_it_takes() -> None:
    """It had 90 s for all of it, however little came with an answer."""
    assert wait(lambda now_s: [f"f0-0 is at {now_s // 9}"] if now_s < 500 else []) >= 500


def test_a_partition_that_is_left_out_is_told_of_though_another_goes_on() -> None:
    with pytest.raises(AssertionError) as told:
        wait(lambda now_s: [f"f0-0 is at {now_s}", "f0-1 is at 7"])
    assert str(told.value) == "no-progress: of fetch sessions: for 10.0 s: f0-1 is at 7"
