"""A few seeds of transaction groups and half messages while nodes die; `added_under_faults.py` runs more."""

import pytest
from added_under_faults import Run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 9, 23])
def test_what_anybody_was_told_is_what_everybody_reads(seed) -> None:
    run = Run(seed)
    run.go()
    assert len(run.decided) >= 3  # how many there are changes with every line of a node
    assert len(run.halves) >= 3


@pytest.mark.slow
def test_the_check_at_the_end_sees_a_decision_that_did_not_hold() -> None:
    run = Run(15)
    told = run.told

    def lie(job, number, fields) -> None:
        if (job, number) == ("job0", 0):
            other = {"commit": "abort", "abort": "commit"}[fields["outcome"]]
            fields = {**fields, "outcome": other}
        told(job, number, fields)

    run.told = lie  # as if a client had been told this, and the cluster knew otherwise
    with pytest.raises(AssertionError, match="job0 0 was told"):
        run.go()
