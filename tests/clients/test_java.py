"""Java's kafka-clients: one JVM runs every selected scenario of tests/clients/java."""

import pytest
from client_programs import scenarios, verify

PRODUCE = [
    "every_level_of_acks_writes_every_record",
    "records_pass_through_none",
    "records_pass_through_gzip",
    "records_pass_through_snappy",
    "records_pass_through_lz4",
    "records_pass_through_zstd",
    "nulls_and_headers_are_kept",
    "an_idempotent_producer_keeps_order",
    "a_record_over_the_limit_is_refused",
    "a_first_write_creates_the_topic",
    "an_impossible_name_is_refused",
    "a_compacted_topic_wants_keys",
    "log_append_time_is_the_brokers",
]
CONSUME = [
    "a_seek_goes_anywhere",
    "offsets_are_found_by_time",
    "an_offset_out_of_range_is_told",
    "a_waiting_fetch_is_woken",
    "a_fetch_session_misses_nothing",
    "pause_and_resume_take_effect",
    "isolation_levels_agree_without_transactions",
    "an_impossible_topic_is_told_to_a_reader",
]
GROUPS = [
    "members_share_RangeAssignor",
    "members_share_RoundRobinAssignor",
    "members_share_StickyAssignor",
    "members_share_CooperativeStickyAssignor",
    "members_share_kip848_uniform",
    "members_share_kip848_range",
    "a_group_goes_on_where_it_committed",
    "a_group_goes_on_where_it_committed_kip848",
    "a_static_member_returns_unnoticed",
    "a_static_member_returns_kip848",
    "a_pattern_follows_new_topics",
    "a_pattern_follows_new_topics_kip848",
    "a_classic_group_is_taken_over_by_kip848",
    "a_member_can_be_removed_by_an_admin",
    "a_commit_of_a_removed_member_fails",
    "an_enforced_rebalance_happens",
]
ADMIN = [
    "topics_are_created_described_deleted",
    "impossible_topics_are_refused",
    "a_topic_is_described_in_pages",
    "partitions_are_added",
    "topic_settings_are_altered",
    "group_settings_are_altered",
    "records_are_deleted",
    "offsets_are_listed_by_spec",
    "log_dirs_are_described",
    "the_cluster_is_described",
    "producers_are_described",
    "groups_are_listed_and_described",
    "group_offsets_are_altered_and_deleted",
    "groups_are_deleted",
]
EDGES = [
    "a_large_record_fits_where_the_topic_allows_it",
    "a_batch_over_the_limit_is_split_by_the_client",
    "offsets_are_committed_at_the_close",
    "a_double_of_a_static_member_fences_the_first",
    "a_member_with_other_assignors_is_refused",
    "new_partitions_reach_a_group",
    "new_partitions_reach_a_group_kip848",
    "the_server_matches_a_pattern",
]
TRANSACTIONS = [
    "transactions_are_read_whole_or_not_at_all",
    "a_reader_waits_at_an_open_transaction",
    "each_transaction_has_an_epoch_of_its_own",
    "a_second_producer_with_the_same_id_fences_the_first",
    "an_operator_ends_the_transaction_of_an_id",
    "an_operator_aborts_what_a_partition_has_open",
    "offsets_come_with_the_commit_and_not_with_an_abort",
    "offsets_come_with_the_commit_and_not_with_an_abort_kip848",
    "offsets_of_a_member_that_left_are_refused",
    "offsets_of_a_member_that_left_are_refused_kip848",
    "a_refused_record_ends_in_an_abort",
    "a_timeout_over_the_maximum_is_refused",
    "transactions_are_listed_and_described",
]
AT_REST = {
    "a_reader_waits_at_an_open_transaction",
    "each_transaction_has_an_epoch_of_its_own",
    "an_operator_aborts_what_a_partition_has_open",
    "transactions_are_listed_and_described",
    "every_level_of_acks_writes_every_record",
    "topics_are_created_described_deleted",
    "the_cluster_is_described",
}


@pytest.fixture
def java_scenario(foreign, scenario):
    verify(foreign.outcomes("java"), scenario)


@pytest.mark.slow
@pytest.mark.needs("java")
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    "scenario",
    scenarios([*PRODUCE, *CONSUME, *GROUPS, *ADMIN, *EDGES, *TRANSACTIONS], at_rest=AT_REST),
)
def test_java(java_scenario, scenario) -> None:
    """What was asserted stands in the scenario; its failure is this test's."""
