"""The transactions campaign, a few seeds of it; all of it is `fencepost sim run --campaign transactions --seeds 0..2000`."""

from dataclasses import replace
from typing import Any

import pytest
from fencepost.chaos.campaigns.again import differs
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.transaction_clients import TransactionClients
from fencepost.chaos.sim.transaction_faults import OF_TRANSACTIONS
from fencepost.chaos.sim.transactions_run import WORKLOADS
from fencepost.chaos.workloads.txn_habits import Habits

SEEDS = range(8)
SHORT_S = 3.0


def run(seed: int, **what: Any) -> Outcome:
    return run_plan(Plan(campaign="transactions", seed=seed, **what))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_whole_or_not_at_all_whatever_fails(seed: int) -> None:
    outcome = run(seed, seconds=SHORT_S)
    assert not outcome.failure, outcome.failure
    assert outcome.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", OF_TRANSACTIONS)
def test_each_fault_of_coordinators_alone_tears_nothing(fault: str) -> None:
    outcome = run(1, seconds=SHORT_S, faults=(fault,), nodes=3)
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["old", "new"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_is_served_by_either_protocol(
    monkeypatch: pytest.MonkeyPatch, workload: str, protocol: str
) -> None:
    """What it did is known of every transaction: no client crashes with its commit on the way."""
    right = TransactionClients.habits

    def habits(self: TransactionClients, *given: Any) -> Habits:
        return replace(right(self, *given), crash_odds=0.0)

    monkeypatch.setattr(TransactionClients, "habits", habits)
    outcome = run(
        3, seconds=2.0, faults=("clock",), nodes=3, workloads=(workload,), protocol=protocol
    )
    assert not outcome.failure, outcome.failure
    assert outcome.counts["acknowledged"] > 3
    assert outcome.counts["unknown"] == 0


@pytest.mark.slow
def test_nodes_and_their_level_are_raised_under_open_transactions() -> None:
    """From transaction.version 0 to 2, a node at a time, then the feature; the clients are old ones throughout."""
    outcome = run(2, seconds=6.0, faults=("upgrade",), nodes=3, workloads=("bank",))
    assert not outcome.failure, outcome.failure
    assert len(outcome.struck) > 3
    assert outcome.counts["acknowledged"] > 3


@pytest.mark.slow
def test_a_seed_of_transactions_replays_exactly_whatever_the_hash_seed() -> None:
    outcome = run(7, seconds=2.0)
    assert outcome.digest
    assert differs(outcome.plan, outcome.digest) == ""
