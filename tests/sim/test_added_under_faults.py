"""A few seeds of transaction groups and half messages while nodes die; `fencepost sim run --campaign added` runs more."""

from typing import Any

import pytest
from fencepost.chaos.sim.added import AddedRun
from fencepost.chaos.sim.plan import Plan


def added(seed: int) -> AddedRun:
    return AddedRun(Plan(campaign="added", seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 9, 23])
def test_what_anybody_was_told_is_what_everybody_reads(seed: int) -> None:
    run = added(seed)
    run.run()
    assert len(run.decided) >= 3  # how many there are changes with every line of a node
    assert len(run.halves) >= 3
    assert run.watch.sweeps and run.watch.seen["commit"] and run.watch.seen["decided"]


@pytest.mark.slow
def test_the_check_at_the_end_sees_a_decision_that_did_not_hold() -> None:
    run: Any = added(15)
    told = run.told

    def lie(job: str, number: int, fields: dict[str, Any]) -> None:
        if (job, number) == ("job0", 0):
            other = {"commit": "abort", "abort": "commit"}[fields["outcome"]]
            fields = {**fields, "outcome": other}
        told(job, number, fields)

    run.told = lie  # as if a client had been told this, and the cluster knew otherwise
    with pytest.raises(AssertionError, match="job0 0 was told"):
        run.run()
