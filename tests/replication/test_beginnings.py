"""Producers that a new leader does not know, and that do not begin with 0."""

import asyncio

import pytest
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.replication.beginnings import TRIES, TRIES_BEHIND
from fencepost.replication.log import verifications_machine
from fencepost.replication.log.producer_snapshot import SEQUENCE_MAX
from fencepost.replication.places import ON_THEIR_WAY_MS, PLACES_MAX, Places
from replica_cluster import Cluster
from replica_cluster import play as play_three
from replica_helpers import Node, batch

SENT_BACK, OUT_OF_ORDER = E.not_leader_or_follower, E.out_of_order_sequence_number


def produce(node: Node, sequence: int, *, pid: int = 7) -> E:
    answer = node.produce(batch(f"{sequence}", pid=pid, sequence=sequence))
    return getattr(answer, "error", E.none)


@pytest.mark.parametrize("written", [0, 1])
def test_the_first_batches_of_a_producer_do_not_overtake_each_other_when_the_lead_moves(
    written: int,
) -> None:
    """1. Batch 0 is on its way to node 1, which is stopped. 2. Node 2 leads: it has never heard of the producer. 3. Batch 1
    overtakes batch 0. Taken, it would have been the beginning, batch 0 out of order for ever, and librdkafka would have called it
    acknowledged, as what follows it was.
    """

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        one, two = cluster[1], cluster[2]
        for sequence in range(written):
            await one.write(batch("x", pid=8, sequence=sequence))
        cluster.elect(2)
        assert [produce(two, each) for each in (1, 2)] == [E.not_leader_or_follower] * 2
        assert [produce(two, each) for each in (0, 3)] == [E.none, E.not_leader_or_follower]
        assert [produce(two, each) for each in (1, 2, 3)] == [E.none] * 3

    play_three(scene)


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_a_producer_that_was_forgotten_begins_where_it_is(in_flight: int) -> None:
    """Its first ones were written long ago: after some tries the lowest is taken, and the others behind it."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        two = cluster[2]
        cluster.elect(2)
        waiting, tries = list(range(40, 40 + in_flight)), 0
        while waiting:
            tries += 1
            told = [produce(two, each) for each in waiting]
            assert set(told) <= {E.none, E.not_leader_or_follower}
            waiting = [
                each for each, error in zip(waiting, told, strict=True) if error is not E.none
            ]
        assert tries == 6
        assert produce(two, 40 + in_flight) is E.none

    play_three(scene)


@pytest.mark.parametrize("tries", [1, 2, 3, 4])
def test_who_gives_the_lowest_up_begins_with_one_behind_it(tries: int) -> None:
    """A client that tries so often gave up batch after batch, each behind one that never came again, whoever led."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.elect(2)
        sequence = 40
        while E.none not in [produce(cluster[2], sequence) for _ in range(tries)]:
            sequence += 1
            assert sequence <= 40 + (TRIES + TRIES_BEHIND) // tries
        assert [produce(cluster[2], sequence + each) for each in range(3)] == [E.none] * 3

    play_three(scene)


def test_five_minutes_after_the_lead_came_only_what_was_asked_for_before_is_waited_for() -> None:
    """What came behind the lowest just before that was taken in front of it just after."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.elect(2)
        two = cluster[2]
        await asyncio.sleep(ON_THEIR_WAY_MS / 1000 - 0.1)
        assert [produce(two, each) for each in (40, 41, 42)] == [SENT_BACK] * 3
        await asyncio.sleep(0.2)
        assert [produce(two, each) for each in (41, 42)] == [SENT_BACK] * 2
        assert [produce(two, each) for each in (40, 41, 42)] == [E.none] * 3
        assert produce(two, 40, pid=8) is E.none

    play_three(scene)


def test_what_the_history_has_forgotten_is_waited_for_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It remembers a thousand of the lowest; that of this producer was pushed out between each two."""
    monkeypatch.setattr(verifications_machine, "REFUSED_MAX", 1)

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.elect(2)
        two, told = cluster[2], []
        while E.none not in told:
            for sequence in (40, 41):
                told.append(produce(two, sequence))
                produce(two, 40, pid=8 + len(told))
        assert told == [SENT_BACK] * (2 * TRIES) + [E.none, E.none]

    play_three(scene)


def test_one_that_is_refused_by_the_rules_of_its_transaction_is_told_so_in_the_end() -> None:
    """Its history asks for the lowest that it was verified for, whatever is given up."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.elect(2)
        two = cluster[2]
        producers = two.partition().log.producers
        guard = producers.start_verification(7, 40, 0, supports_epoch_bump=False, now_ms=0)
        assert producers.verifications.confirm(7, 0, guard)
        assert produce(two, 40) is SENT_BACK
        told = [produce(two, 41) for _ in range(TRIES_BEHIND + 3)]
        assert told[-1] is OUT_OF_ORDER

    play_three(scene)


def test_a_lower_one_that_comes_late_is_asked_for_as_often() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.elect(2)
        assert [produce(cluster[2], 41) for _ in range(TRIES)] == [SENT_BACK] * TRIES
        assert [produce(cluster[2], 40) for _ in range(TRIES + 1)] == [SENT_BACK] * TRIES + [E.none]
        assert produce(cluster[2], 41) is E.none

    play_three(scene)


def test_who_leads_again_asks_as_often_again() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        for leader in (2, 1, 2):
            cluster.elect(leader)
            assert [produce(cluster[leader], 41) for _ in range(TRIES)] == [SENT_BACK] * TRIES
        assert produce(cluster[2], 41) is E.none

    play_three(scene)


def test_the_last_sequence_number_is_before_the_first() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        two = cluster[2]
        cluster.elect(2)
        assert [produce(two, each) for each in (SEQUENCE_MAX, 0)] == [SENT_BACK] * 2
        for _ in range(TRIES - 1):
            assert produce(two, SEQUENCE_MAX) is SENT_BACK
        assert [produce(two, each) for each in (SEQUENCE_MAX, 0)] == [E.none] * 2

    play_three(scene)


def test_more_producers_than_have_a_place_keep_nobody_waiting() -> None:
    """They pushed each other out, and each was asked from the beginning: nobody wrote for five minutes."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        cluster.elect(2)
        waiting = list(range(PLACES_MAX + 1))
        for _ in range(TRIES + 1):
            waiting = [pid for pid in waiting if produce(cluster[2], 40, pid=pid) is not E.none]
        assert not waiting

    play_three(scene)


def test_who_was_not_heard_of_for_so_long_gives_his_place_to_another() -> None:
    places: Places[str] = Places()
    for pid in range(PLACES_MAX):
        assert places.take(pid, "old", now_ms=pid)
    assert places.take(0, "again", now_ms=PLACES_MAX)
    assert not places.take(PLACES_MAX, "new", now_ms=ON_THEIR_WAY_MS)
    assert places.take(PLACES_MAX, "new", now_ms=1 + ON_THEIR_WAY_MS)
    assert (places.of(0), places.of(1), places.of(PLACES_MAX)) == ("again", None, "new")
