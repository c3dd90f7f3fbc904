"""One Raft that leads, word by word: what it commits, when its lead ends, and what followers may claim."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.quorum.election_machine import ELECTION_S
from fencepost.cluster.quorum.raft_leader import LEASE_S
from fencepost.cluster.quorum.redirected import in_world
from fencepost.cluster.quorum.segment_format import Entry
from fencepost.cluster.quorum.voters import VOTERS_KIND, write_voters
from raft_peers import VOTERS, Peers


def test_a_commit_needs_a_majority_that_has_synced_it(one: Peers) -> None:
    one.lead()
    one.tick()
    assert one.raft.commit_index == 1
    one.hear(2, 1, "alive", stamp=0.0)
    one.tick()
    assert one.raft.commit_index == 1
    one.held(2, 3)
    one.tick()
    assert one.raft.commit_index == 2


def test_an_answer_of_an_earlier_term_counts_nothing(one: Peers) -> None:
    """pysyncobj's `next_node_idx` has no term. What node 3 had at 3 was of term 1, and has gone since."""
    one.lead()
    one.add()
    one.append(2, (1, 0), 2)  # deposed
    one.lead()
    assert (one.raft.term, one.raft.last.idx) == (3, 3)
    before = one.raft.lease_end()
    one.held(3, 4, term=1)
    one.hear(3, 2, "alive", stamp=one.world.loop.time())
    one.tick()
    assert (one.raft.commit_index, one.raft.lease_end()) == (1, before)
    one.held(3, 4)
    one.tick()
    assert one.raft.commit_index == 3


def test_a_lead_ends_with_the_clock_when_no_majority_has_answered_lately(one: Peers) -> None:
    """30 s as pysyncobj comes. What counts is when that was said which they answer, not when the answer arrived."""
    one.lead()
    start = one.world.loop.time()
    one.sleep(0.2)
    one.held(2, 3)
    assert one.raft.lease_end() == pytest.approx(start + 0.2 + LEASE_S)
    assert LEASE_S <= 0.9 * ELECTION_S, "the others' clocks may be faster"
    one.sleep(3)  # the process was stopped, and finds an old answer in its socket
    one.hear(3, 1, "held", next_index=3, stamp=start + 0.3)
    assert one.raft.lease_end() < one.world.loop.time()


def test_a_follower_that_claims_what_is_not_there_is_refused(one: Peers) -> None:
    one.lead()
    with pytest.raises(FrameRefused, match="does not have"):
        one.held(2, 99)
    with pytest.raises(FrameRefused, match="not said yet"):
        one.hear(2, 1, "alive", stamp=1e9)


def test_followers_have_an_entry_before_the_leaders_own_disk_does(one: Peers) -> None:
    """It need not wait for its own sync: it does not count itself before that."""
    one.lead()
    one.held(2, 3)
    one.tick()
    one.add()
    sent = [len(message["entries"]) for _, _, message in one.said]
    assert sent == [1, 1] and one.journal.undurable


def test_what_a_follower_lost_with_its_disk_counts_no_more(one: Peers) -> None:
    one.lead()
    one.held(2, 3)
    one.tick()
    one.add()
    one.held(2, 4)
    one.hear(2, 1, "gap", next_index=2, stamp=one.world.loop.time())
    assert [entry.idx for entry in one.said[0][2]["entries"]] == [2, 3]
    one.sync()
    one.tick()
    assert one.raft.commit_index == 2


def test_what_was_held_before_the_disk_was_lost_counts_no_more_when_it_comes_late(
    one: Peers,
) -> None:
    """It came on another connection than the gap, behind it: the leader committed what one disk had."""
    one.lead()
    one.held(2, 3)
    one.tick()
    one.add()
    one.sync()
    early = one.world.loop.time()
    one.sleep(0.01)
    one.hear(2, 1, "gap", next_index=2, stamp=one.world.loop.time())
    one.hear(2, 1, "held", next_index=4, stamp=early)
    one.tick()
    assert one.raft.commit_index == 2
    one.held(2, 4)
    one.tick()
    assert one.raft.commit_index == 3


def test_of_gaps_behind_one_burst_the_first_is_answered(one: Peers) -> None:
    """The others lie further up where logs part: taken for news, they went round for ever, and grew (seed 583)."""
    one.lead()
    one.held(2, 3)
    for _ in range(3):
        one.add()
    stamp = one.world.loop.time()
    one.sleep(0.01)
    assert one.hear(2, 1, "gap", next_index=2, stamp=stamp) == [(2, "append_entries")]
    again = one.world.loop.time()
    assert one.said[0][2]["previous_index"] == 1
    one.sleep(0.01)
    assert one.hear(2, 1, "gap", next_index=5, stamp=stamp) == []
    one.held(2, 6)
    one.sleep(0.01)
    assert one.hear(2, 1, "gap", next_index=3, stamp=again) == [(2, "append_entries")]


def test_a_voter_that_is_being_removed_may_lead_until_that_is_committed(one: Peers) -> None:
    """It may be the only one that has what was committed: nobody else could be elected (seed 482)."""
    others = {each: VOTERS[each] for each in (2, 3)}
    with in_world(one.env):
        one.raft._add(Entry(bytes([VOTERS_KIND]) + write_voters(others), 2, 0))
        assert one.raft.may_stand and not one.raft.is_voter
        one.raft.elect_at_once()
        one.raft.doTick()
    one.hear(2, 1, "response_vote", term=1, fresh=False)
    assert not one.raft.leads, "its own vote does not count"
    one.hear(3, 1, "response_vote", term=1, fresh=False)
    assert one.raft.leads
    one.append(2, (2, 0), 2, commit=2)
    assert not one.raft.may_stand


@pytest.mark.parametrize("others", [2, 3, 4, 5])
def test_a_leader_that_removes_itself_does_not_count_for_that(world: World, others: int) -> None:
    """Of three it was committed by the leader and one more; that one's disk was lost, and nobody had it (seed 53366)."""
    everybody = {each: (f"n{each}", 9192) for each in range(1, others + 2)}
    one = Peers(world, voters=everybody)
    one.lead()
    rest = [each for each in everybody if each != 1]
    for each in rest:
        one.held(each, 3)
    one.tick()
    packed = write_voters({each: everybody[each] for each in rest})
    with in_world(one.env):
        one.raft.submit_voters(packed, lambda *_: None)
        one.raft.doTick()
    one.sync()
    index = one.raft.last.idx
    for number, each in enumerate(rest, 1):
        assert one.raft.commit_index == index - 1
        one.held(each, index + 1)
        one.tick()
        if number > others / 2:
            break
    assert one.raft.commit_index == index
