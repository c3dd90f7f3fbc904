"""Seeds that once found a fault, by what went wrong. The table is `chaos/RECORD.md`."""

import pytest
from fencepost.chaos.sim.one_node import OneNode


@pytest.mark.slow
def test_a_log_that_recovery_cut_acknowledges_what_is_appended_next() -> None:
    """The recovered log forgot how far its file was synced, and waited for a sync that never came."""
    OneNode(1260, seconds=8).run()
