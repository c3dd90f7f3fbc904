"""What the transactions campaign has on top: groups that subscribe, groups of writers, half messages; and that it sees them broken."""

from typing import Any

import pytest
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.checkers.txn_history import NO_NUMBER
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.transactions_run import MORE_WORKLOADS
from fencepost.chaos.workloads.txn_reader import GroupPositions
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

pytestmark = pytest.mark.slow
SEEDS_MAX = 6


def run(
    seed: int, workload: str, *faults: str, protocol: str = "", seconds: float = 3.0
) -> Outcome:
    return run_plan(
        Plan(
            campaign="transactions",
            seed=seed,
            seconds=seconds,
            faults=faults,
            nodes=3,
            workloads=(workload,),
            protocol=protocol,
        )
    )


def first_failure(workload: str, *faults: str) -> str:
    for seed in range(SEEDS_MAX):
        failure = run(seed, workload, *faults).failure
        if failure:
            return failure
    return ""


@pytest.mark.parametrize("protocol", ["old", "new"])
@pytest.mark.parametrize("workload", MORE_WORKLOADS)
def test_what_is_on_top_is_served_by_either_protocol(workload: str, protocol: str) -> None:
    outcome = run(2, workload, "clock", protocol=protocol)
    assert not outcome.failure, outcome.failure
    assert outcome.counts["acknowledged"] > 3


def test_a_group_of_writers_of_which_one_is_left_out_is_seen(monkeypatch: Any) -> None:
    end = TransactionsMachine.end

    def partly(self: Any, transactional_id: str, *, commit: bool, now_ms: int) -> Any:
        kept = commit and not transactional_id.endswith("::w1")
        return end(self, transactional_id, commit=kept, now_ms=now_ms)

    monkeypatch.setattr(TransactionsMachine, "end", partly)
    assert "torn" in first_failure("added", "reset")


def test_a_half_message_that_is_told_to_be_committed_and_is_not_is_seen(monkeypatch: Any) -> None:
    end = TransactionsMachine.end

    def never(self: Any, transactional_id: str, *, commit: bool, now_ms: int) -> Any:
        kept = commit and not transactional_id.startswith("shop::")
        return end(self, transactional_id, commit=kept, now_ms=now_ms)

    monkeypatch.setattr(TransactionsMachine, "end", never)
    assert "torn" in first_failure("added", "reset")


def test_positions_that_their_group_has_forgotten_are_seen(monkeypatch: Any) -> None:
    """What is there is worked on again by whoever is given the partition next."""
    find = GroupPositions.find

    async def forgetful(self: Any, partitions: Any) -> Any:
        return dict.fromkeys(await find(self, partitions), (-1, NO_NUMBER))

    monkeypatch.setattr(GroupPositions, "find", forgetful)
    assert "group-repeat" in run(2, "subscribe", "reset", seconds=8.0).failure
