"""Three replicas under random faults. More seeds: FENCEPOST_SEEDS=0..200 (both ends as in range)."""

import os

import pytest
from replica_campaign import campaign

FIRST, LAST = (int(each) for each in os.environ.get("FENCEPOST_SEEDS", "0..3").split(".."))


@pytest.mark.slow
@pytest.mark.parametrize("flush_policy", ["ack", "os"])
@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_nothing_acknowledged_is_lost_doubled_or_different(seed: int, flush_policy: str) -> None:
    """Power cuts only where syncs count: without, replicas and not disks keep what was acknowledged."""
    run = campaign(seed, flush_policy=flush_policy)
    assert sum(len(each.acknowledged) for each in run.producers) > 100
