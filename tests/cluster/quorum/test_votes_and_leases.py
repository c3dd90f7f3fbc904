"""A lease is the voters' promise to its leader: they keep it when they vote, too, and not only when they are asked before."""

from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.quorum.election_machine import ELECTION_S
from raft_peers import Peers, asks, pre_asks


@pytest.fixture
def voter(world: World) -> Peers:
    """Node 1, which hears node 2 lead term 1 and then, for as long as a leader is waited for, nobody."""
    one = Peers(world)
    one.append(1, (1, 0), 1)
    one.sync()
    one.sleep(ELECTION_S + 0.01)
    return one


def beat(one: Peers, stamp: float = 0.0) -> Any:
    heartbeat = {"commit_index": 1, "entries": [], "previous_index": 2, "previous_term": 1}
    return one.hear(2, 1, "append_entries", stamp=stamp, **heartbeat)


def test_a_voter_that_heard_its_leader_after_it_granted_a_pre_vote_votes_for_nobody(
    voter: Peers,
) -> None:
    """1. Node 3 asks, and node 1 misses its leader as well. 2. Node 2 was late: it is heard again, and answered; of three
    voters that is a lease. 3. Node 3 stands: with the vote of node 1 two would lead at once."""
    assert pre_asks(voter, 3, 1, (2, 1)) == [(3, "pre_vote_granted")]
    assert beat(voter) == [(2, "held")]
    assert asks(voter, 3, 2, last=(2, 1)) == []
    assert voter.raft.term == 1, "its leader is followed still"
    voter.sleep(ELECTION_S + 0.01)
    assert asks(voter, 3, 3, last=(2, 1)) == [(3, "response_vote")]


def test_a_voter_that_was_killed_keeps_to_what_it_promised_when_it_votes(world: World) -> None:
    """It had granted the pre-vote, and heard its leader, before it was killed and back."""
    one = Peers(world)
    assert asks(one, 3, 2) == []
    one.sleep(ELECTION_S)
    assert asks(one, 3, 3) == [(3, "response_vote")]


def test_a_leader_that_hands_over_lets_its_voters_go(voter: Peers) -> None:
    """Else they would not vote for whom it has asked to stand, and nobody would lead for most of a second."""
    beat(voter)
    assert voter.hear(3, 1, "pre_vote_granted", round=0, fresh=False) == []
    assert asks(voter, 3, 2, last=(2, 1)) == [], "who does not lead can't let anybody go"
    voter.hear(2, 1, "pre_vote_granted", round=0, fresh=False)
    assert asks(voter, 3, 2, last=(2, 1)) == [(3, "response_vote")]


def test_who_is_handed_the_lead_is_asked_when_the_others_have_been_let_go(world: World) -> None:
    one = Peers(world)
    one.lead()
    one.held(3, one.raft.last.idx + 1)
    one.said.clear()
    one.raft.hand_over()
    said = [(to, message) for to, _, message in one.said]
    assert said == [
        (2, {"type": "pre_vote_granted", "round": 0, "fresh": False}),
        (3, {"type": "timeout_now"}),
    ]
