"""Plans of runs: one line does each again, and places are filled as the workload says."""

import argparse
import shlex

import pytest
from fencepost.chaos.runs.commands import _plan, configure
from fencepost.chaos.runs.plan import Plan
from fencepost.chaos.runs.workloads import WORKLOADS

PLANS = [
    Plan(),
    Plan(workload="bank", target="kafka", faults=("none",), nodes=5, seed=9, seconds=3_600.0),
    Plan(at_once=3, clients=7, rate=2.5, keys=3, writes_max=10, via=("assign",), crash_s=0.0),
    Plan(faults=("upgrade",), older="464f310"),
    Plan(transactions=False, final_s=30.0, settings=("flush.policy=os", "log.roll.ms=1 000")),
]


@pytest.mark.parametrize("plan", PLANS)
def test_the_line_of_a_plan_does_the_same_again(plan) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    first, second, *words = shlex.split(plan.command)
    assert (first, second) == ("fencepost", "chaos")
    assert _plan(parser.parse_args(words)) == plan


def roles(clients: int) -> list[str]:
    plan = Plan(workload="bank", clients=clients)
    filled = [WORKLOADS["bank"].words(plan, slot, []) for slot in range(clients)]
    return [words[words.index("--role") + 1] for words in filled]


def test_the_last_place_of_a_bank_is_its_auditors() -> None:
    assert roles(3) == ["teller", "teller", "auditor"]
    assert roles(1) == ["teller"]


def test_a_client_of_the_queue_goes_on_with_the_newest_keys() -> None:
    words = WORKLOADS["queue"].words(Plan(), 0, ["t0-1", "t7-0", "t3-1"])
    assert words[words.index("--newest-key") + 1] == "14"
