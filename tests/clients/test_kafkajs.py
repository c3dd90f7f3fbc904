"""kafkajs: one Node process runs every selected scenario of tests/clients/node."""

import pytest
from client_programs import scenarios, verify

SCENARIOS = [
    "every_level_of_acks_writes_every_record_in_order",
    "gzip_passes_through",
    "headers_keys_and_nulls_come_back",
    "an_idempotent_producer_leaves_no_holes",
    "a_record_over_the_limit_is_refused_and_the_next_taken",
    "many_topics_are_written_in_one_batch",
    "a_reader_seeks_where_it_wants",
    "a_reader_from_the_end_sees_only_what_is_new",
    "an_offset_out_of_range_is_reset",
    "a_paused_partition_is_silent_until_it_is_resumed",
    "whole_batches_are_handed_over",
    "members_share_partitions_as_they_come_and_go",
    "nothing_is_lost_over_a_rebalance",
    "a_group_goes_on_where_it_committed",
    "a_member_that_is_slow_to_answer_keeps_its_place",
    "a_members_own_assigner_decides",
    "topics_are_made_described_grown_and_deleted",
    "settings_are_described_and_altered",
    "offsets_are_listed_by_time_and_records_deleted",
    "groups_are_listed_described_reset_and_deleted",
    "the_cluster_describes_itself",
    "transactions_are_read_whole_or_not_at_all",
    "a_reader_waits_at_an_open_transaction",
    "offsets_come_with_the_commit_and_not_with_an_abort",
    "a_second_producer_with_the_same_id_fences_the_first",
]


@pytest.fixture
def kafkajs_scenario(foreign, scenario):
    verify(foreign.outcomes("kafkajs"), scenario)


@pytest.mark.slow
@pytest.mark.needs("node")
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    "scenario",
    scenarios(
        SCENARIOS,
        at_rest={
            "every_level_of_acks_writes_every_record_in_order",
            "the_cluster_describes_itself",
            "a_reader_waits_at_an_open_transaction",
        },
    ),
)
def test_kafkajs(kafkajs_scenario, scenario) -> None:
    """What was asserted stands in the scenario; its failure is this test's."""
