"""Seeds that once found a fault, by what went wrong. The table is `chaos/RECORD.md`."""

import pytest
from fencepost.chaos.sim.added import AddedRun
from fencepost.chaos.sim.cluster import STREAM, ClusterRun
from fencepost.chaos.sim.cluster_fault_table import USUAL
from fencepost.chaos.sim.cluster_faults import ON_TOP
from fencepost.chaos.sim.one_node import OneNode
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.quorum import QuorumRun
from fencepost.chaos.sim.transactions_run import ALL_USUAL, TransactionsRun
from fencepost.chaos.sim.world import World

DISKS = "disks in trouble"


def as_before(seed: int, usual: tuple[str, ...] = USUAL) -> tuple[str, ...]:
    """The faults that this seed drew before it had those of `DISKS`: it is kept for what it found with these."""
    names = [*usual]
    with World(seed) as world:
        for stream, (odds, more) in ON_TOP.items():
            if stream != DISKS and world.stream(stream).random() < odds:
                names += more
    return tuple(names)


@pytest.mark.slow
def test_a_log_that_recovery_cut_acknowledges_what_is_appended_next() -> None:
    """The recovered log forgot how far its file was synced, and waited for a sync that never came."""
    OneNode(Plan(campaign="one-node", seed=1260)).run()


@pytest.mark.slow
def test_half_a_batch_that_a_full_disk_cut_off_does_not_come_back_and_end_the_log() -> None:
    """It stood at the end of a sealed segment when the power was back: all that was acknowledged behind it was cut off."""
    OneNode(Plan(campaign="one-node", seed=20034)).run()


@pytest.mark.slow
def test_what_follows_a_refused_batch_is_not_out_of_order_though_a_known_retry_came_before_it() -> (
    None
):
    """What was told was counted from the retry: after two rounds of five batches on a full disk its producer was ended."""
    ClusterRun(Plan(campaign="cluster", seed=20097, workloads=(STREAM,))).run()


@pytest.mark.slow
def test_nobody_waits_for_a_flipped_bit_of_a_partition_that_was_moved_away() -> None:
    """Its folder is set aside, and not read; the simulator waited for its node to find the bit."""
    ClusterRun(Plan(campaign="cluster", seed=40177, keep_faults=(1, 4), until_s=2.979)).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 6, 58])
def test_a_clock_that_was_set_ahead_makes_no_producer_forgotten(seed: int) -> None:
    """Expiry went by the wall clock: set a day ahead, it forgot producers whose next retry would be written twice."""
    faults = ("clock", "kill", "cut-client", "reset")
    ClusterRun(Plan(campaign="cluster", seed=seed, nodes=1, faults=faults)).run()


@pytest.mark.slow
def test_a_voter_whose_journal_saw_a_sync_fail_comes_back_after_an_end_of_power() -> None:
    """It believed the page cache after a failed sync, and found a hole in its journal when the power had gone."""
    ClusterRun(Plan(campaign="cluster", seed=134, faults=as_before(134))).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_a_process_that_is_not_registered_yet_leads_nothing(seed: int) -> None:
    """A restarted node led what its image gave to the process before it: its high watermark went back."""
    ClusterRun(Plan(campaign="cluster", seed=seed, nodes=3, faults=as_before(seed))).run()


@pytest.mark.slow
def test_a_vote_in_the_instant_of_healing_cuts_nobody_off_for_good() -> None:
    """The simulator's fault: what was to strike behind a vote struck when all was healed, and two voters never heard their leader."""
    QuorumRun(Plan(campaign="quorum", seed=115321)).run()


@pytest.mark.slow
def test_a_timer_that_fires_a_hair_too_early_is_not_set_for_that_hair() -> None:
    """A leader whose lease was about to end spun: its timer fired before it, by the rounding of a sum."""
    QuorumRun(Plan(campaign="quorum", seed=346)).run()


@pytest.mark.slow
def test_a_journal_with_a_conflict_across_segments_is_read_again() -> None:
    """Its owner took it for damaged and did not start."""
    QuorumRun(Plan(campaign="quorum", seed=367)).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 13])
def test_a_clock_that_was_set_back_keeps_no_transaction_open(seed: int) -> None:
    """A coordinator waited for its wall clock to reach the deadline; set back a day, stable offsets stood for that day."""
    plan = Plan(campaign="transactions", seed=seed, seconds=3.0, faults=("clock", "reset", "kill"))
    TransactionsRun(plan).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [110, 145, 272])
def test_brokers_that_come_new_or_with_an_empty_disk_keep_nothing_waiting(seed: int) -> None:
    """A newcomer knew no leader; what had its one copy on a disk that was replaced could only be deleted."""
    ClusterRun(Plan(campaign="cluster", seed=seed)).run()


@pytest.mark.slow
def test_voters_that_are_back_at_once_keep_what_they_promised() -> None:
    """Two of three came back and elected another within the lease of the third, which they had answered."""
    plan = Plan(campaign="cluster", seed=1427, faults=as_before(1427), workloads=(STREAM,))
    ClusterRun(plan).run()


@pytest.mark.slow
def test_a_coordinator_that_slept_tells_no_position_of_long_ago() -> None:
    """It woke, named itself as the group's coordinator, and told from memory what had been overtaken meanwhile."""
    ClusterRun(Plan(campaign="cluster", seed=1286)).run()


@pytest.mark.slow
def test_a_rotten_file_of_leader_epochs_keeps_no_follower_out() -> None:
    """Kafka's format has no checksum: one flipped bit, and it refused whatever its leaders sent."""
    TransactionsRun(Plan(campaign="transactions", seed=20016)).run()


@pytest.mark.slow
def test_a_rotten_index_of_aborted_transactions_shows_none_as_committed() -> None:
    """One flipped bit in a first offset, and the transaction was named to no reader."""
    TransactionsRun(Plan(campaign="transactions", seed=96)).run()


@pytest.mark.slow
def test_a_compacted_log_that_lost_the_end_of_a_file_ends_there() -> None:
    """The next file was there: the hole between the two was taken for a cleaner's."""
    TransactionsRun(Plan(campaign="transactions", seed=169)).run()


@pytest.mark.slow
def test_a_decision_does_not_stand_on_another_entry_than_it_believes() -> None:
    """An entry that the controller had forgotten made the version that one of its decisions was to make."""
    TransactionsRun(Plan(campaign="transactions", seed=1141)).run()


@pytest.mark.slow
def test_a_voter_whose_log_parts_from_its_leaders_comes_up_again() -> None:
    """Its answers to one burst of appends sent the leader to and fro, for ever."""
    faults = as_before(583, ALL_USUAL)
    TransactionsRun(Plan(campaign="transactions", seed=583, faults=faults)).run()


@pytest.mark.slow
def test_aborted_transactions_are_told_of_after_a_cut_and_a_start() -> None:
    """The file of their index kept entries that a truncation had taken out, in place of the newer ones."""
    TransactionsRun(Plan(campaign="transactions", seed=152)).run()


@pytest.mark.slow
def test_a_cut_that_a_full_disk_put_off_does_not_leave_a_log_that_looks_damaged() -> None:
    """The second try took the recovery point for lowered: only memory had it lower, and the log was cut below the disk's."""
    TransactionsRun(Plan(campaign="transactions", seed=261)).run()


@pytest.mark.slow
def test_one_of_two_voters_whose_journal_is_damaged_is_emptied_and_comes_back() -> None:
    """Nobody leads without it; the person of the simulator waited for others to be ready, and not for what it had said."""
    ClusterRun(Plan(campaign="cluster", seed=1141, workloads=(STREAM,))).run()


@pytest.mark.slow
def test_a_coordinator_that_was_deposed_takes_no_commit_for_the_last_one_s() -> None:
    """Of a producer's last transaction it remembered the end, and said of the next one, which its successor had: committed."""
    plan = Plan(
        campaign="transactions",
        seed=2,
        seconds=12.0,
        faults=("left-behind",),
        nodes=3,
        workloads=("bank",),
        protocol="old",
    )
    TransactionsRun(plan).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [170, 182])
def test_a_deleted_key_does_not_come_back_with_a_replica_that_was_away(seed: int) -> None:
    """The others had cleaned the tombstone away before it could copy it: it kept the value for good, in sync."""
    faults = as_before(seed, ALL_USUAL)
    plan = Plan(campaign="transactions", seed=seed, workloads=("compacted",), faults=faults)
    TransactionsRun(plan).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [13, 34])
def test_a_node_starts_on_a_disk_that_is_full(seed: int) -> None:
    """It died of its first checkpoint, or of writing down which boot it runs in."""
    faults = ("full-at-a-start", "kill")
    OneNode(Plan(campaign="one-node", seed=seed, faults=faults)).run()


@pytest.mark.slow
def test_what_no_descriptor_was_left_to_sync_is_synced_when_there_are_some() -> None:
    """Nobody tried again until the log's next write: its follower stayed out of the ISR, and a batch unacknowledged."""
    faults = ("full-then-power", "full-at-a-sync", "read-only", "no-descriptors")
    ClusterRun(Plan(campaign="cluster", seed=170, faults=faults)).run()


@pytest.mark.slow
def test_an_answer_that_comes_when_all_nodes_have_died_is_judged() -> None:
    """Of a topic that no running node knows any more: who judges deletions remembers it."""
    ClusterRun(Plan(campaign="cluster", seed=53521, keep_faults=(5, 6))).run()


@pytest.mark.slow
def test_a_leader_that_is_removed_commits_that_when_a_majority_of_the_others_has_it() -> None:
    """It counted itself: of three voters one more was enough, and when that one's disk was lost nobody could be elected."""
    QuorumRun(Plan(campaign="quorum", seed=53366)).run()


@pytest.mark.slow
def test_what_was_under_way_when_a_voter_came_is_committed_by_those_before_it() -> None:
    """It and the leader of two were enough for that; the third knew of two, and was elected by the leader with an empty disk."""
    QuorumRun(Plan(campaign="quorum", seed=55309)).run()


@pytest.mark.slow
def test_a_rotten_disk_is_replaced_in_the_end_though_another_was_away() -> None:
    """The simulator's person waited for ten seconds, and left it."""
    QuorumRun(Plan(campaign="quorum", seed=55679)).run()


@pytest.mark.slow
def test_a_set_of_voters_counts_when_the_one_before_has_it() -> None:
    """Of two voters one had not heard of a third, and was elected by the other, whose disk was empty now."""
    faults = ("change-voters", "isolate", "empty-disk")
    QuorumRun(Plan(campaign="quorum", seed=0, faults=faults)).run()


@pytest.mark.slow
def test_records_of_a_deleted_topic_are_not_the_next_ones() -> None:
    """An end of power had left them, and taken what said whose they were."""
    TransactionsRun(Plan(campaign="transactions", seed=60415)).run()


@pytest.mark.slow
def test_half_a_batch_behind_rotten_leader_epochs_is_cut_off_as_any_is() -> None:
    """The epochs were read anew from the batches, and from what a disk that was read-only had left of one."""
    kept = (1, 2, 3, 4, 5, 6, 7, 10, 11)
    ClusterRun(Plan(campaign="cluster", seed=109311, keep_faults=kept)).run()


@pytest.mark.slow
def test_a_reader_that_is_told_of_damage_by_the_last_copy_waits_for_another() -> None:
    """A leader's log had rotted, and the other in sync was killed before it could lead: CORRUPT_MESSAGE, as it must be."""
    workloads, kept = ("pipeline", "added"), (1, 2, 4)
    plan = Plan(campaign="transactions", seed=111347, keep_faults=kept, workloads=workloads)
    TransactionsRun(plan).run()


@pytest.mark.slow
def test_halves_of_a_partition_without_a_coordinator_are_not_taken_for_decided() -> None:
    """Two partitions changed their leaders when all halves were asked for: the answer said so, and nobody looked."""
    AddedRun(Plan(campaign="added", seed=109970)).run()


@pytest.mark.slow
def test_a_snapshot_that_has_rotted_leaves_nobody_unknown_whose_records_were_deleted() -> None:
    """It alone told of them: the replica joined the in-sync set, and knew less than its leader."""
    faults, kept = (
        ("rotten-file", "kill", "power-one", "rotten-log"),
        (1, 2, 3, 4, 5, 6, 10, 11, 12),
    )
    plan = Plan(
        campaign="transactions", seed=19, workloads=("cut",), faults=faults, keep_faults=kept
    )
    TransactionsRun(plan).run()


@pytest.mark.slow
def test_who_begins_anew_in_the_in_sync_set_is_told_who_wrote_what_was_deleted() -> None:
    """Its leader took it for one that knew: its disk had been replaced."""
    TransactionsRun(Plan(campaign="transactions", seed=111347, keep_faults=(1, 2, 4))).run()


@pytest.mark.slow
def test_halves_of_a_leader_that_has_not_heard_that_it_is_one_are_not_taken_for_decided() -> None:
    """Who led before had given them away, and who was asked knew it: both listed nothing."""
    AddedRun(Plan(campaign="added", seed=115284, until_s=3.499, nodes=3)).run()


@pytest.mark.slow
def test_what_a_leader_wrote_that_nobody_followed_is_not_what_expires() -> None:
    """It had written over records that the next leader had: those were old, and its own were not."""
    ClusterRun(Plan(campaign="cluster", seed=115498)).run()


@pytest.mark.slow
def test_what_is_stable_goes_back_where_a_deletion_has_not_been_heard_of() -> None:
    """Records were deleted in the middle of an open transaction, and the next leader began before it yet."""
    TransactionsRun(Plan(campaign="transactions", seed=115707)).run()


@pytest.mark.slow
def test_what_was_deleted_goes_on_a_node_that_was_killed_though_nobody_writes_any_more() -> None:
    """The only snapshot that its start made was at the high watermark, and stood for nothing."""
    ClusterRun(Plan(campaign="cluster", seed=113831)).run()


@pytest.mark.slow
def test_a_log_that_had_synced_nothing_and_was_killed_while_it_began_anew_owes_nothing() -> None:
    """Its first file was there, and its start in memory was the one before."""
    ClusterRun(Plan(campaign="cluster", seed=125076, keep_faults=(1, 2, 4, 5), until_s=3.688)).run()


@pytest.mark.slow
def test_a_follower_that_begins_further_back_than_before_says_so() -> None:
    """It was killed before its disk knew of the deletion, led, and what was deleted was there again."""
    kept = (1, 2, 3, 7, 8, 9)
    TransactionsRun(Plan(campaign="transactions", seed=121245, keep_faults=kept)).run()


@pytest.mark.slow
def test_what_was_deleted_goes_though_the_disk_was_full_when_its_file_was_sealed() -> None:
    """The next snapshot was made where the high watermark stayed."""
    kept = (1, 3, 4, 5, 6, 7, 9)
    ClusterRun(Plan(campaign="cluster", seed=121660, keep_faults=kept, until_s=7.721)).run()


@pytest.mark.slow
def test_an_answer_that_a_member_reads_after_it_stood_still_is_as_old_as_its_question() -> None:
    """It had been fenced meanwhile, and another had what it held."""
    kept = (1, 2, 3, 4, 5, 6, 7, 8, 11, 12)
    TransactionsRun(Plan(campaign="transactions", seed=121776, keep_faults=kept)).run()


@pytest.mark.slow
def test_a_table_of_more_keys_than_fit_a_round_is_compacted_before_the_node_rests() -> None:
    """Somebody had set its rest to 15 s, and it rested in the middle of the table each time."""
    TransactionsRun(Plan(campaign="transactions", seed=126916)).run()


@pytest.mark.slow
def test_who_reads_in_sessions_with_little_room_goes_on_for_as_long_as_it_has_to() -> None:
    """A record or eight an answer, four answers a second, of 3,648 that two producers had written: it was given 90 s."""
    kept = ("p0", "p3", "f0")
    plan = Plan(campaign="cluster", seed=122945, keep_faults=(), keep_clients=kept, nodes=3)
    ClusterRun(plan).run()


@pytest.mark.slow
def test_a_leader_that_slept_does_not_call_out_of_order_what_goes_on_behind_its_successors() -> (
    None
):
    """It was elected anew meanwhile, and asked before it had heard of either: one batch had overtaken another, as it may then."""
    ClusterRun(Plan(campaign="cluster", seed=126899, keep_faults=(1, 2, 4, 6))).run()


@pytest.mark.slow
def test_who_is_deposed_and_has_the_last_transaction_open_yet_refuses_nothing_of_the_next() -> None:
    """It had stood still, and read the next one's batch and the last one's marker in one moment."""
    TransactionsRun(Plan(campaign="transactions", seed=122640, keep_faults=(1, 2, 3))).run()


@pytest.mark.slow
def test_a_log_that_is_moved_away_while_it_is_compacted_is_no_error_of_its_node() -> None:
    """Its files were gone: the node said so as an error, and counted it for the alert."""
    plan = Plan(campaign="transactions", seed=128112, keep_faults=(9,), until_s=5.2)
    TransactionsRun(plan).run()


@pytest.mark.slow
def test_who_has_cut_off_what_a_bit_has_flipped_in_does_not_lead_before_those_who_have_it() -> None:
    """Rot of the last batch, then no power anywhere: it was cut as torn, and the node that was first to be back led without it."""
    plan = Plan(campaign="transactions", seed=128470, keep_faults=(1, 2), until_s=1.451, nodes=3)
    TransactionsRun(plan).run()


@pytest.mark.slow
def test_who_wrote_what_a_full_disk_let_go_is_known_when_its_node_is_back() -> None:
    """It let go what no snapshot stood for, to make room for one; and was killed before that was written."""
    plan = Plan(campaign="cluster", seed=128938, keep_faults=(1, 2, 3), until_s=2.57)
    ClusterRun(plan).run()
