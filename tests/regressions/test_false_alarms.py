"""Seeds that failed though nothing was wrong: what the simulator, or its judges, had misjudged. The table is `chaos/RECORD.md`."""

import pytest
from fencepost.chaos.sim.cluster import ClusterRun
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.transactions_run import TransactionsRun


@pytest.mark.slow
def test_who_is_elected_uncleanly_because_a_person_asked_for_it_is_no_anomaly() -> None:
    """The simulator's person gave up what was on a replaced disk alone, and a replica that a move had added led: the watch was not told."""
    kept = (1, 2, 3, 4, 5, 11)
    ClusterRun(Plan(campaign="cluster", seed=126654, keep_faults=kept)).run()


@pytest.mark.slow
def test_a_topic_that_nobody_writes_to_keeps_no_rotten_disk_from_being_replaced() -> None:
    """It was asked for with one copy before the disk rotted, and put on that one a second later: the simulator's person waited for ever."""
    ClusterRun(Plan(campaign="cluster", seed=128435)).run()


@pytest.mark.slow
def test_a_bit_that_a_start_after_a_power_cut_writes_again_is_the_disks_doing_yet() -> None:
    """Of a batch's own offset, which no checksum covers: the watch took it for what the node had written, and for another history."""
    kept = (1, 2, 3, 4, 6, 7)
    ClusterRun(Plan(campaign="cluster", seed=131716, keep_faults=kept, until_s=4.55)).run()


@pytest.mark.slow
def test_a_table_that_cannot_be_compacted_as_a_bit_of_it_has_flipped_is_no_fault_of_its_node() -> (
    None
):
    kept = {"keep_faults": (4,), "keep_clients": ("table1", "table2"), "until_s": 2.339}
    TransactionsRun(Plan(campaign="transactions", seed=128030, nodes=3, **kept)).run()


@pytest.mark.slow
def test_who_copies_a_fence_that_compaction_has_emptied_does_not_know_the_epoch_that_it_was_of() -> (
    None
):
    """As in Kafka. What it was to keep out is refused by the coordinator, which is asked about the first batch of each transaction."""
    TransactionsRun(Plan(campaign="transactions", seed=129213)).run()


@pytest.mark.slow
def test_a_last_pass_over_partitions_of_which_all_was_deleted_has_nothing_to_read() -> None:
    """All partitions that were written to, deleted up to their ends just before it."""
    kept = (1, 2, 3, 4, 5, 6, 7, 10, 11, 13)
    ClusterRun(Plan(campaign="cluster", seed=130234, keep_faults=kept, until_s=8.612)).run()
