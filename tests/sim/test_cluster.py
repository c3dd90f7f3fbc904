"""The cluster campaign, a few seeds of it; all of it is `python -m fencepost.chaos.sim.cluster --seeds 0..2000`."""

import os
import subprocess
import sys

import pytest
from fencepost.chaos.sim.cluster import ClusterRun, Wanted, run_seed
from fencepost.chaos.sim.cluster_faults import FAULTS

SEEDS = range(12)
SHORT_S = 4.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises_whatever_fails(seed: int) -> None:
    outcome = run_seed(Wanted(seed, SHORT_S, "", 0))
    assert not outcome.failure, outcome.failure
    assert outcome.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_loses_nothing(fault: str) -> None:
    outcome = run_seed(Wanted(1, 3.0, fault, 3))
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_without_syncs_one_machine_at_a_time_loses_nothing(seed: int) -> None:
    """flush.policy=os, Kafka's way: replicas keep acknowledged data, not disks."""
    wanted = Wanted(seed, 6.0, "power-apart", 3, ("flush.policy=os",), at_once=1)
    outcome = run_seed(wanted)
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
def test_a_seed_of_a_cluster_replays_exactly_whatever_the_hash_seed() -> None:
    command = [
        sys.executable,
        "-m",
        "fencepost.chaos.sim.cluster",
        "--seeds",
        "7",
        "--seconds",
        "3",
    ]
    told = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[0]
        for hash_seed in ("0", "4242")
    }
    assert len(told) == 1
    assert told.pop().startswith("digest ")


def test_the_command_of_a_failing_seed_names_all_that_it_needs() -> None:
    wanted = Wanted(17, 8.0, "kill,pause", 4)
    assert wanted.command.endswith("cluster --seeds 17 --seconds 8 --faults kill,pause --nodes 4")
    run = ClusterRun(17, faults=["kill"], nodes=4)
    run.world.close()
    assert run.nodes.ids == [1, 2, 3, 4]
