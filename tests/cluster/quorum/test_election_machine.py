from fencepost.cluster.quorum.election_machine import (
    ELECTION_S,
    GONE_S,
    GRANTED_S,
    LATE_S,
    READ_S,
    RETRY_S,
    ElectionMachine,
)

VOTERS = (1, 2, 3)


def machine(draw: float = 0.5) -> ElectionMachine:
    election = ElectionMachine(0.0, lambda: draw)
    election.heard_leader(10.0)
    return election


def test_a_leader_is_given_up_after_once_to_twice_the_election_timeout() -> None:
    for draw in (0.0, 0.5, 0.99):
        election = machine(draw)
        assert not election.is_due(10.0 + ELECTION_S * (1 + draw) - 0.001)
        assert election.is_due(10.0 + ELECTION_S * (1 + draw) + 0.001)


def test_a_leader_that_is_dead_is_given_up_at_once() -> None:
    election = machine()
    assert not election.misses_leader(10.1)
    election.leader_gone(10.1)
    assert election.misses_leader(10.1)
    assert election.is_due(10.1 + GONE_S)


def test_a_timer_that_fires_late_lets_this_process_read_first() -> None:
    """It was stopped, or the machine was busy: what the leader said meanwhile is still in the socket."""
    election = machine()
    late = election.deadline + LATE_S + 1
    assert not election.is_due(late)
    assert election.is_due(late + READ_S)
    election = machine()
    assert not election.is_due(late)
    election.heard_leader(late + 0.01)
    assert not election.is_due(late + READ_S)


def test_where_each_turn_of_the_loop_is_late_a_deadline_is_put_off_once() -> None:
    election = machine()
    late = election.deadline + LATE_S + 0.01
    assert not election.is_due(late)
    assert election.is_due(late + READ_S + LATE_S + 0.01)
    election.ask(late, 1, fresh=False)
    late = election.deadline + LATE_S + 0.01
    assert not election.is_due(late)  # another deadline


def test_a_round_is_won_once_by_a_majority_that_answered_it() -> None:
    election = machine()
    first = election.ask(11.0, 1, fresh=False)
    second = election.ask(11.0 + GRANTED_S, 1, fresh=False)
    assert not election.on_granted(2, first, VOTERS, fresh=False)
    assert not election.on_granted(9, second, VOTERS, fresh=False)
    assert election.on_granted(2, second, VOTERS, fresh=False)
    assert not election.on_granted(3, second, VOTERS, fresh=False)


def test_where_a_round_trip_is_longer_than_a_round_its_answers_count_all_the_same() -> None:
    """Each answer came to a round that was over; nobody was ever elected."""
    five = (1, 2, 3, 4, 5)
    election = machine()
    rounds = [election.ask(11.0 + number * 1.5 * RETRY_S, 1, fresh=False) for number in range(3)]
    assert not election.on_granted(2, rounds[0], five, fresh=False)
    assert not election.on_granted(2, rounds[1], five, fresh=False)
    assert election.on_granted(3, rounds[0], five, fresh=False)
    # Of the rounds before an election nothing counts in the next.
    election.stand(11.4)
    again = election.ask(11.5, 1, fresh=False)
    assert not election.on_granted(2, rounds[2], five, fresh=False)
    assert not election.on_granted(3, rounds[2], five, fresh=False)
    assert not election.on_granted(2, again, five, fresh=False)
    assert election.on_granted(3, again, five, fresh=False)


def test_a_leader_that_is_heard_ends_the_round() -> None:
    election = machine()
    asked = election.ask(11.0, 1, fresh=False)
    election.heard_leader(11.01)
    assert not election.on_granted(2, asked, VOTERS, fresh=False)


def test_whom_a_first_election_waits_for_is_known() -> None:
    election = machine()
    asked = election.ask(11.0, 1, fresh=True)
    assert election.waits_for(VOTERS) == []
    assert not election.on_granted(2, asked, VOTERS, fresh=True)
    assert election.waits_for(VOTERS) == [3]
    assert election.on_granted(3, asked, VOTERS, fresh=True)


def test_what_was_promised_before_a_restart_is_kept() -> None:
    """Two of three are killed and back in a moment, in which the third may lead by what they had answered it."""
    election = ElectionMachine(5.0, lambda: 0.0, first=False)
    for now in (5.0, 5.2, 5.0 + ELECTION_S - 0.001):
        assert not election.misses_leader(now)
        assert not election.is_due(now)
    assert election.deadline == 5.0 + ELECTION_S
    assert election.misses_leader(5.0 + ELECTION_S)
    assert election.is_due(5.0 + ELECTION_S)


def test_who_never_voted_has_promised_nothing() -> None:
    election = ElectionMachine(5.0, lambda: 0.0, first=True)
    assert election.misses_leader(5.0)


def test_a_leader_that_was_heard_is_the_one_that_counts() -> None:
    """It is the one from before, or was elected when that one's time was over."""
    election = ElectionMachine(5.0, lambda: 0.0, first=False)
    election.heard_leader(5.1)
    election.leader_gone(5.2)
    assert election.misses_leader(5.2)
    assert election.is_due(5.2)
