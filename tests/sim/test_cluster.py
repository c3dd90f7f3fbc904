"""The cluster campaign, a few seeds of it; all of it is `fencepost sim run --campaign cluster --seeds 0..2000`."""

from typing import Any

import pytest
from fencepost.chaos.campaigns.again import differs
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.sim.cluster import ClusterRun
from fencepost.chaos.sim.cluster_fault_table import FAULTS
from fencepost.chaos.sim.plan import Plan

SEEDS = range(12)
SHORT_S = 4.0


def run(seed: int, **what: Any) -> Outcome:
    return run_plan(Plan(campaign="cluster", seed=seed, **what))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises_whatever_fails(seed: int) -> None:
    outcome = run(seed, seconds=SHORT_S)
    assert not outcome.failure, outcome.failure
    assert outcome.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_loses_nothing(fault: str) -> None:
    outcome = run(1, seconds=3.0, faults=(fault,), nodes=3)
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_without_syncs_one_machine_at_a_time_loses_nothing(seed: int) -> None:
    """flush.policy=os, Kafka's way: replicas keep acknowledged data, not disks."""
    outcome = run(
        seed,
        seconds=6.0,
        faults=("power-apart",),
        nodes=3,
        config=("flush.policy=os",),
        at_once=1,
    )
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
def test_a_seed_of_a_cluster_replays_exactly_whatever_the_hash_seed() -> None:
    outcome = run(7, seconds=3.0)
    assert outcome.digest
    assert differs(outcome.plan, outcome.digest) == ""


def test_a_plan_says_how_many_nodes_there_are() -> None:
    found = ClusterRun(Plan(campaign="cluster", seed=17, faults=("kill",), nodes=4))
    found.world.close()
    assert found.nodes.ids == [1, 2, 3, 4]
