"""The transactions campaign, a few seeds of it; all of it is `python -m fencepost.chaos.sim.transactions --seeds 0..2000`."""

import os
import subprocess
import sys

import pytest
from fencepost.chaos.sim.transaction_faults import OF_TRANSACTIONS
from fencepost.chaos.sim.transactions import run_seed
from fencepost.chaos.sim.transactions_run import WORKLOADS, Wanted

SEEDS = range(24)
SHORT_S = 3.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_whole_or_not_at_all_whatever_fails(seed: int) -> None:
    outcome = run_seed(Wanted(seed, SHORT_S))
    assert not outcome.failure, outcome.failure
    assert outcome.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", OF_TRANSACTIONS)
def test_each_fault_of_coordinators_alone_tears_nothing(fault: str) -> None:
    outcome = run_seed(Wanted(1, SHORT_S, fault, 3))
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["old", "new"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_is_served_by_either_protocol(workload: str, protocol: str) -> None:
    outcome = run_seed(Wanted(2, 2.0, "clock", 3, workload, protocol))
    assert not outcome.failure, outcome.failure
    assert outcome.counts["acknowledged"] > 3
    assert outcome.counts["unknown"] == 0


@pytest.mark.slow
def test_a_seed_of_transactions_replays_exactly_whatever_the_hash_seed() -> None:
    command = [sys.executable, "-m", "fencepost.chaos.sim.transactions"]
    command += ["--seeds", "7", "--seconds", "2"]
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


def test_the_command_of_a_failing_seed_of_transactions_names_all_that_it_needs() -> None:
    wanted = Wanted(17, 8.0, "hunt", 4, "bank", "old", ("flush.policy=os",), 1)
    assert wanted.command == (
        "python -m fencepost.chaos.sim.transactions --seeds 17 --seconds 8 --faults hunt --nodes 4"
        " --workloads bank --protocol old --config flush.policy=os --at-once 1"
    )
