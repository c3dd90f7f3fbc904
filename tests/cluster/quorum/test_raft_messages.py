"""One Raft that follows and votes, word by word: what it answers to whom, and what it refuses as a lie."""

import asyncio
from typing import Any

import msgpack
import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import FrameRefused
from fencepost.cluster.quorum.election_machine import ELECTION_S
from fencepost.cluster.quorum.redirected import in_world
from fencepost.cluster.quorum.segment_format import Entry
from fencepost.cluster.quorum.vote_file import VoteFile
from fencepost.cluster.quorum.voters import VOTERS_KIND
from raft_peers import Peers, asks, pre_asks

# --- following ------------------------------------------------------------------------------------


def test_an_answer_counts_only_what_the_follower_has_synced(one: Peers) -> None:
    """pysyncobj's acknowledges what it has added to its memory."""
    assert one.append(1, (1, 0), 1, 1) == [(2, "alive")]
    one.said.clear()
    one.sync()
    assert [(to, message) for to, _, message in one.said] == [
        (2, {"type": "held", "next_index": 4, "stamp": 0.0})
    ]


def test_what_comes_while_the_disk_syncs_waits_for_the_next_sync(one: Peers) -> None:

    async def scenario() -> None:
        one.append(1, (1, 0), 1)
        syncing = asyncio.ensure_future(one.journal.make_durable())
        await asyncio.sleep(0)
        assert one.append(1, (2, 1), 1) == [(2, "alive")]
        await syncing
        one.said.clear()
        with in_world(one.env):
            one.raft.say_what_is_held()
        assert [message["next_index"] for _, _, message in one.said] == [3]

    one.world.run(one.world.on(one.env, scenario()))
    one.said.clear()
    one.sync()
    assert [message["next_index"] for _, _, message in one.said] == [4]


def test_a_late_append_takes_nothing_away_and_proves_nothing_more(one: Peers) -> None:
    one.append(1, (1, 0), 1, 1, 1)
    one.sync()
    assert one.append(1, (1, 0), 1) == [(2, "held")]
    assert one.said[0][2]["next_index"] == 3
    assert one.raft.last.idx == 4


def test_the_commit_goes_no_further_than_what_the_leader_is_known_to_have(one: Peers) -> None:
    """Behind it lie entries of an earlier leader, which nobody committed: pysyncobj would apply them."""
    one.append(1, (1, 0), 1, 1, 1)
    one.append(2, (2, 1), commit=4)
    assert one.raft.commit_index == 2


HEARTBEAT = {
    "commit_index": 1,
    "entries": [],
    "stamp": 0.0,
    "previous_index": 1,
    "previous_term": 0,
}
SNAPSHOT = {
    "last_index": 9,
    "last_term": 1,
    "position": 0,
    "size": 9,
    "data": b"",
    "stamp": 0.0,
}


@pytest.mark.parametrize(("kind", "said"), [("append_entries", HEARTBEAT), ("snapshot", SNAPSHOT)])
def test_a_second_leader_of_a_term_lies_and_is_refused(
    one: Peers, kind: str, said: dict[str, Any]
) -> None:
    """Whoever has the secret can say it. It ended the node, by an assertion; now it costs him his connection."""
    one.append(1, (1, 0), 1)
    with pytest.raises(FrameRefused, match=r"Node 3 says that it leads term 1.*node 2 does"):
        one.hear(3, 1, kind, **said)
    assert one.raft.leader_id == 2
    assert one.append(1, (2, 1), 1) == [(2, "alive")], "the leader is listened to as before"


def test_who_says_to_a_leader_that_it_leads_lies_and_is_refused(one: Peers) -> None:
    one.lead()
    with pytest.raises(FrameRefused, match=r"Node 9 says that it leads term 1.*node 1 does"):
        one.hear(9, 1, "append_entries", **HEARTBEAT)
    assert one.raft.leads


def test_a_leader_that_lacks_what_is_committed_lies_and_is_refused(one: Peers) -> None:
    one.append(1, (1, 0), 1, 1, commit=3)
    with pytest.raises(FrameRefused, match="Entry 2 of a leader is another than is committed"):
        one.append(2, (1, 0), 2)
    with pytest.raises(FrameRefused, match="has another entry 3, which is committed here"):
        one.append(3, (3, 3), 3)
    assert [one.raft.last.idx, one.raft.last.term] == [3, 1]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (b"\x07x", "is of kind 7"),
        (bytes([VOTERS_KIND]) + b"x", "is none"),
        (bytes([VOTERS_KIND]) + b"\x92\x01\x91\x01", "is none"),
        (bytes([VOTERS_KIND]) + b"\x92\x09\x90", "format 9"),
    ],
)
def test_an_entry_that_nobody_could_apply_does_not_get_into_the_log(
    one: Peers, command: bytes, why: str
) -> None:
    with pytest.raises(FrameRefused, match=why):
        one.hear(2, 1, "append_entries", **{**HEARTBEAT, "entries": [Entry(command, 2, 1)]})
    assert one.raft.last.idx == 1


@pytest.mark.parametrize("index", [-1, 2**63, 2**64 - 1])
def test_an_index_or_a_term_that_can_not_be_is_refused(one: Peers, index: int) -> None:
    frame = msgpack.packb([0, {"type": "pre_vote", "round": 1, "last_log_index": index,
                               "last_log_term": 0}])  # fmt: skip
    with pytest.raises(FrameRefused, match="last_log_index"):
        one.raft.receive(2, frame)
    with pytest.raises(FrameRefused, match="not \\[term, fields\\]"):
        one.raft.receive(2, msgpack.packb([index, {"type": "behind"}]))
    assert one.raft.term == 0


def test_who_is_behind_is_told_so_and_not_listened_to(one: Peers) -> None:
    """Otherwise a leader of an earlier term never hears that it is deposed."""
    one.append(3, (1, 0), 3)
    assert one.append(2, (1, 0), 2) == [(2, "behind")]
    assert one.said[0][1] == 3
    assert one.raft.last.term == 3


def test_entries_that_do_not_follow_each_other_are_refused(one: Peers) -> None:
    entries = [Entry(b"\x00x", 2, 1), Entry(b"\x00x", 4, 1)]
    with pytest.raises(FrameRefused, match="do not follow"):
        one.hear(
            2, 1, "append_entries", commit_index=1, entries=entries, stamp=0.0,
            previous_index=1, previous_term=0,
        )  # fmt: skip


# --- voting ---------------------------------------------------------------------------------------


def test_a_voter_that_votes_twice_is_counted_once(one: Peers) -> None:
    """pysyncobj counts messages: one voter and its echo make a leader of five voters."""
    with in_world(one.env):
        one.raft.sets.add(2, {each: (f"n{each}", 9192) for each in range(1, 6)})
        one.raft._voters_changed()
        one.raft.elect_at_once()
        one.raft.doTick()
    for _ in range(3):
        one.hear(2, 1, "response_vote", term=1, fresh=False)
        assert not one.raft.leads
    one.hear(3, 1, "response_vote", term=1, fresh=False)
    assert one.raft.leads


def test_a_vote_of_who_is_no_voter_counts_nothing(one: Peers) -> None:
    with in_world(one.env):
        one.raft.elect_at_once()
        one.raft.doTick()
    one.hear(7, 1, "response_vote", term=1, fresh=False)
    assert not one.raft.leads


def test_a_vote_that_was_given_in_an_earlier_term_makes_no_leader_of_a_later_one(
    one: Peers,
) -> None:
    """Node 1 stands in term 1, hears nothing, and stands in term 2, for which node 2 may have voted for another."""
    with in_world(one.env):
        for _ in range(2):
            one.raft.elect_at_once()
            one.raft.doTick()
    assert one.raft.term == 2
    assert one.hear(2, 1, "response_vote", term=1, fresh=False) == []
    assert not one.raft.leads
    one.hear(2, 2, "response_vote", term=2, fresh=False)
    assert one.raft.leads


def test_one_vote_a_term_and_it_is_on_the_disk_before_it_leaves(one: Peers) -> None:
    assert asks(one, 2, 1) == [(2, "response_vote")]
    stored = VoteFile(one.env, "/data/q/vote")
    assert (stored.term, stored.voted_for) == (1, 2)
    assert asks(one, 3, 1) == []
    assert asks(one, 2, 1) == [(2, "response_vote")], "its answer may have been lost"
    assert asks(one, 3, 2) == [(3, "response_vote")]


def test_a_later_term_and_the_vote_in_it_are_stored_at_once(one: Peers) -> None:
    """Each sync holds up everything: two were enough, on a slow disk, that nobody was ever elected."""
    asks(one, 2, 1)  # the files are made
    synced = one.world.trace.counts["disk.sync"]
    assert asks(one, 2, 5) == [(2, "response_vote")]
    assert one.world.trace.counts["disk.sync"] == synced + 1
    assert asks(one, 3, 6, last=(0, 0)) == []  # it is less far: the term alone
    assert (one.raft.term, one.journal.vote.voted_for) == (6, None)


def test_a_term_that_no_elections_have_brought_is_refused(one: Peers) -> None:
    """Taken up, it would have been the last one: each later vote would need a term above it."""
    with pytest.raises(FrameRefused, match=f"Node 2 is in term {2**62 - 1}"):
        one.hear(2, 2**62 - 1, "behind")
    assert one.raft.term == 0


def test_a_vote_that_can_not_be_stored_is_not_given(one: Peers) -> None:
    one.world.disk("a").faults.fail("*", path="*vote*", number=28)
    with pytest.raises(OSError, match="No space"):
        asks(one, 2, 1)
    assert (one.said, one.raft.term) == ([], 0)
    assert asks(one, 3, 1) == [(3, "response_vote")]


def test_who_is_less_far_gets_no_vote(one: Peers) -> None:
    one.append(1, (1, 0), 1, 1)
    one.sleep(2)
    assert asks(one, 3, 2, last=(9, 0)) == []
    assert asks(one, 3, 3, last=(2, 1)) == []
    assert asks(one, 3, 4, last=(3, 1)) == [(3, "response_vote")]


def test_whoever_has_given_its_vote_away_does_not_stand_in_the_next_moment(one: Peers) -> None:
    """Found at once: both won their pre-vote, one voted for the other and deposed it with the next tick."""
    with in_world(one.env):
        one.raft.elect_at_once()
    asks(one, 3, 1)
    one.tick()
    assert (one.raft.term, one.raft.leads) == (1, False)


# --- before a vote --------------------------------------------------------------------------------


def test_who_hears_a_leader_grants_no_pre_vote_and_no_term_grows(one: Peers) -> None:
    one.append(1, (1, 0), 1)
    assert pre_asks(one, 3, 1, (2, 1)) == [(2, "follow")], "the leader is told instead"
    one.sleep(2 * ELECTION_S)
    assert pre_asks(one, 3, 1, (1, 0)) == [], "it is less far"
    assert pre_asks(one, 3, 1, (2, 1)) == [(3, "pre_vote_granted")]
    assert one.raft.term == 1


def test_a_leader_that_a_majority_answers_grants_no_pre_vote(one: Peers) -> None:
    one.lead()
    one.held(2, 3)
    assert pre_asks(one, 3, 1, (9, 1)) == [(3, "append_entries")], "it hears the leader instead"
    one.sleep(2 * ELECTION_S)
    assert pre_asks(one, 3, 1, (9, 1)) == [(3, "pre_vote_granted")]


# --- a voter that lost its disk -------------------------------------------------------------------


def test_a_voter_that_began_empty_says_so_until_it_has_caught_up(world: World) -> None:
    one = Peers(world, fresh=True)
    asks(one, 3, 1)
    assert one.said[0][2]["fresh"] is True
    one.append(2, (1, 0), 2, commit=2)
    one.sync()
    one.tick()
    with in_world(one.env):
        one.raft.maybe_grow_up()
    stored = VoteFile(one.env, "/data/q/vote")
    assert (stored.fresh, stored.voted_for) == (False, 2)
