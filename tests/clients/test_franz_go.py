"""franz-go: one program runs every selected scenario of tests/clients/go."""

import pytest
from client_programs import scenarios, verify

SCENARIOS = [
    "every_level_of_acks_writes_every_record_in_order",
    "every_codec_passes_through",
    "an_idempotent_producer_leaves_no_holes",
    "headers_keys_and_nulls_come_back",
    "a_large_record_fits_where_the_topic_allows_it",
    "a_record_over_the_limit_is_refused_and_the_next_taken",
    "a_first_write_creates_the_topic_where_it_is_asked_to",
    "a_reader_seeks_where_it_wants",
    "a_reader_starts_at_a_time_or_relative_to_an_end",
    "an_offset_out_of_range_is_reset_or_told",
    "a_paused_partition_is_silent_until_it_is_resumed",
    "a_waiting_fetch_is_woken",
    "a_small_limit_still_brings_a_large_record",
    "isolation_levels_agree_without_transactions",
    "a_topic_made_again_is_not_taken_for_the_old_one",
    "a_pattern_finds_topics_made_later",
    "members_share_by_range",
    "members_share_round_robin",
    "members_share_stickily",
    "members_share_cooperatively",
    "members_share_kip848_uniform",
    "members_share_kip848_range",
    "a_cooperative_member_keeps_what_it_can",
    "a_member_keeps_what_it_can_kip848",
    "a_group_goes_on_where_it_committed",
    "a_group_goes_on_where_it_committed_kip848",
    "a_static_member_comes_back_to_what_it_had",
    "nothing_is_lost_over_a_rebalance",
    "nothing_is_lost_over_a_rebalance_kip848",
    "new_partitions_reach_a_group",
    "new_partitions_reach_a_group_kip848",
    "a_group_changes_its_protocol_member_by_member",
    "groups_are_listed_described_and_deleted",
    "groups_are_listed_described_and_deleted_kip848",
    "group_offsets_are_set_listed_and_deleted",
    "a_static_member_is_removed_by_its_name",
    "topics_are_made_described_grown_and_deleted",
    "impossible_topics_are_refused",
    "topic_settings_are_altered",
    "broker_settings_are_described",
    "offsets_are_listed_by_kind",
    "records_are_deleted",
    "an_epoch_has_an_end",
    "log_dirs_are_described",
    "the_cluster_describes_itself",
    "transactions_are_read_whole_or_not_at_all",
    "a_reader_waits_at_an_open_transaction",
    "a_second_producer_with_the_same_id_fences_the_first",
    "a_new_producer_ends_what_its_last_one_left_open",
    "a_session_copies_every_record_once",
    "a_session_copies_every_record_once_kip848",
    "transactions_are_listed_and_described",
    "an_operator_aborts_what_a_partition_has_open",
]
# Leader epochs are said there, and every node of the cluster is asked.
AT_REST = {
    "a_reader_waits_at_an_open_transaction",
    "transactions_are_listed_and_described",
    "an_operator_aborts_what_a_partition_has_open",
    "every_level_of_acks_writes_every_record_in_order",
    "log_dirs_are_described",
    "headers_keys_and_nulls_come_back",
    "an_epoch_has_an_end",
    "the_cluster_describes_itself",
}


@pytest.fixture
def franz_scenario(foreign, scenario):
    verify(foreign.outcomes("franz"), scenario)


@pytest.mark.slow
@pytest.mark.needs("go")
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("scenario", scenarios(SCENARIOS, at_rest=AT_REST))
def test_franz_go(franz_scenario, scenario) -> None:
    """What was asserted stands in the scenario; its failure is this test's."""
