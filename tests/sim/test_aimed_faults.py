"""Faults that are scenes: they are played to their end, and what they ask a sound cluster is answered as it should be."""

import pytest
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.sim.plan import Plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def played(campaign: str, fault: str, seed: int, **more: object) -> tuple[Outcome, list[str]]:
    """What it came to, and what the scenes said."""
    told: list[str] = []
    plan = Plan(campaign=campaign, seed=seed, nodes=3, faults=(fault,), **more)
    outcome = run_plan(plan, told.append)
    assert outcome.failure == "", outcome.failure
    said = [line.split(" ", 2)[2] for line in told if line.split(" ", 2)[1] == "chaos"]
    return outcome, [
        line for line in said if line.startswith(("played ", "asked ", "late ", "read "))
    ]


@pytest.mark.parametrize("seed", [1, 2])  # in which both are asked within the time
def test_who_is_left_behind_tells_nobody_what_it_remembers(seed: int) -> None:
    _, said = played("cluster", "left-behind", seed, seconds=8.0)
    asked = [line for line in said if line.startswith("asked")]
    assert any("matter=Positions" in line for line in asked)
    assert any("matter=Ends" in line for line in asked)
    assert not any("told=none" in line for line in asked)
    assert any(line.startswith("played") for line in said)


def test_a_coordinator_that_is_left_behind_ends_no_transaction() -> None:
    _, said = played("transactions", "left-behind", 0, seconds=6.0, workloads=("bank",))
    asked = [line for line in said if "matter=Transaction" in line]
    assert asked
    assert not any("told=none" in line for line in asked)


def test_a_position_is_shown_to_nobody_before_others_have_it() -> None:
    _, said = played("cluster", "unheard-write", 0, seconds=6.0)
    assert any(line.startswith("played") for line in said)


def test_a_batch_that_comes_after_its_transaction_is_refused() -> None:
    """KIP-890: nothing but its coordinator knows that it is late."""
    _, said = played("transactions", "late-batch", 0, seconds=2.0, workloads=("bank",))
    late = [line for line in said if line.startswith("late")]
    assert late
    assert {line.partition("told=")[2] for line in late} <= {
        "transaction_abortable",
        "invalid_txn_state",
    }


@pytest.mark.parametrize(("seed", "wanted"), [(0, "none"), (3, "transaction_abortable")])
def test_a_word_that_comes_into_the_next_topic_of_its_name_counts_for_nothing(
    seed: int, wanted: str
) -> None:
    """Its producer's next transaction is one of its own there, and a batch of the one before is not let in."""
    _, said = played("transactions", "late-word", seed, seconds=4.0, workloads=("bank",))
    assert [line.partition("told=")[2] for line in said if line.startswith("late")] == [wanted]


def test_what_is_on_its_way_stays_what_it_was_while_its_file_goes() -> None:
    _, said = played("cluster", "slow-reader", 1, seconds=4.0, workloads=("expiring",))
    read = [line for line in said if line.startswith("read")]
    assert read
    assert all("told=none" in line for line in read)
