"""Group coordinators of a cluster of three that move with the leadership of their partitions."""

import asyncio
from contextlib import suppress

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from group_coordinators import E, Groups, Producer, play

pytestmark = pytest.mark.slow
SEEDS = pytest.mark.parametrize("seed", range(3))


class AnotherSeed(Exception):
    """What a scenario is about can't be had with this one."""


@SEEDS
def test_every_node_names_the_leader_of_the_groups_partition(seed: int) -> None:
    async def scenario(groups: Groups, coordinator: int) -> None:
        assert {await groups.coordinator(int(each)) for each in groups.nodes.ids} == {coordinator}
        image = groups.nodes.image
        assert image is not None
        states = image.topics[GROUP_OFFSETS_TOPIC].partitions
        assert all(len(state.replicas) == 3 for state in states)
        assert states[groups.partition].leader == coordinator
        for other in groups.others(coordinator):
            assert await groups.commit(other, 9) is E.not_coordinator
            assert await groups.fetch(other) is E.not_coordinator

    play(seed, scenario)


@SEEDS
@pytest.mark.parametrize("end", ["kill", "stop", "power"])
def test_a_stable_group_goes_on_where_its_next_coordinator_is(seed: int, end: str) -> None:
    """The member keeps its id, its generation and its position; nobody rebalances."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 42) is E.none
        began = groups.world.loop.time()
        match end:
            case "kill":
                groups.world.kill(node_name(coordinator))
            case "power":
                groups.world.crash(node_name(coordinator))
            case "stop":
                await groups.nodes.stop(coordinator)
        successor = await groups.next_coordinator(coordinator)
        await groups.until(successor, 42, lambda: groups.fetch(successor))
        took_s = groups.world.loop.time() - began
        assert took_s < (5.0 if end == "power" else 3.0), took_s
        assert await groups.beat(successor) is E.none
        assert await groups.commit(successor, 43) is E.none
        groups.nodes.start(coordinator)
        await groups.nodes.until_whole()
        back = await groups.coordinator(coordinator)
        assert isinstance(back, int)
        await groups.until(back, 43, lambda: groups.fetch(back))
        assert await groups.beat(back) is E.none
        for other in groups.others(back):
            assert await groups.beat(other) is E.not_coordinator

    play(seed, scenario)


@SEEDS
def test_a_coordinator_that_slept_answers_for_nobody_when_it_wakes(seed: int) -> None:
    """What it was asked before and never wrote is not there, whatever it thinks; what its successor took is."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 1) is E.none
        groups.world.pause(node_name(coordinator))
        asked = asyncio.ensure_future(groups.commit(coordinator, 2))
        successor = await groups.next_coordinator(coordinator)
        await groups.until(successor, 1, lambda: groups.fetch(successor))
        assert await groups.commit(successor, 5) is E.none
        groups.world.resume(node_name(coordinator))
        try:
            assert await asked is not E.none
        except Trouble:
            pass  # it was too late to hear
        await groups.nodes.until_whole()
        one = await groups.next_coordinator(0)
        await groups.until(one, 5, lambda: groups.fetch(one))

    play(seed, scenario)


@SEEDS
@pytest.mark.parametrize("away", ["asleep", "suspended", "cut off"])
def test_a_coordinator_that_slept_tells_nobody_positions_of_long_ago(seed: int, away: str) -> None:
    """Another was elected meanwhile and has stored a newer one. A client that asks in the first moment afterwards, before
    anybody else has said a word to it, is told where the group is now, or to look for it."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        assert await groups.commit(coordinator, 7) is E.none
        name = node_name(coordinator)
        if away == "asleep":
            groups.world.pause(name)
        elif away == "suspended":
            groups.world.suspend(name)
        else:
            for other in groups.others(coordinator):
                groups.world.net.cut(name, node_name(other))
        one = await groups.next_coordinator(coordinator)
        await groups.until(one, E.none, lambda: groups.commit(one, 9))
        if away != "cut off":
            groups.world.resume(name)
        for _ in range(2):
            assert await groups.fetch_or_nothing(coordinator) in (9, E.not_coordinator, None)
        groups.world.heal()
        await groups.nodes.until_whole()

    play(seed, scenario)


@SEEDS
def test_the_last_of_three_keeps_its_members_and_tells_no_position(seed: int) -> None:
    """Before they died the others may have stored a newer one, for all that the last one knows. And nobody is left to take
    the dead out of the in-sync set: what is appended waits for them, as in Kafka, and what is asked of that group
    afterwards waits with it."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 7) is E.none
        for other in groups.others(coordinator):
            groups.world.kill(node_name(other))
            await asyncio.sleep(4)
        assert await groups.beat(coordinator) is E.none
        assert await groups.fetch_or_nothing(coordinator) in (E.not_coordinator, None)
        assert await groups.commit(coordinator, 8) is E.coordinator_not_available
        groups.nodes.start_all()
        await groups.nodes.until_whole()
        one = await groups.next_coordinator(0)
        await groups.until(one, E.none, lambda: groups.commit(one, 9))
        assert await groups.fetch(one) == 9

    play(seed, scenario)


@SEEDS
def test_under_the_minimum_of_replicas_members_stay_and_positions_are_told(seed: int) -> None:
    """The controller has taken the dead out: a write is refused before anything is decided, and costs no more."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        followers = groups.replicas_of_group()
        followers.remove(coordinator)
        if set(followers) <= set(map(int, groups.nodes.voters)):
            raise AnotherSeed("the quorum would be gone")
        await groups.become_stable(coordinator)
        assert await groups.commit(coordinator, 7) is E.none
        for follower in followers:
            groups.world.kill(node_name(follower))
        await asyncio.sleep(6)
        if await groups.coordinator(coordinator) != coordinator:
            raise AnotherSeed("the leaders were balanced meanwhile")
        for _ in range(5):
            assert await groups.beat(coordinator) is E.none
            assert await groups.fetch(coordinator) == 7
            assert await groups.commit(coordinator, 8) is E.coordinator_not_available
            await asyncio.sleep(0.5)
        groups.nodes.start_all()
        await groups.nodes.until_whole()
        one = await groups.next_coordinator(0)
        await groups.until(one, E.none, lambda: groups.commit(one, 9))
        assert await groups.beat(one) is E.none

    for other in range(seed, 30, 3):
        with suppress(AnotherSeed):
            return play(other, scenario, nodes=5)
    raise AssertionError("none of ten seeds has a follower that does not vote")


@SEEDS
def test_who_waits_for_a_rebalance_is_sent_to_the_next_coordinator(seed: int) -> None:
    """An undecided join is memory of one coordinator: it is answered, and the next one has never heard of it."""

    async def scenario(groups: Groups, coordinator: int) -> None:
        await groups.become_stable(coordinator)
        second = await groups.join(coordinator)
        waits = asyncio.ensure_future(groups.join(coordinator, second.member_id))
        await asyncio.sleep(0.2)
        assert not waits.done()
        await groups.nodes.stop(coordinator)
        try:
            assert (await waits).error_code is E.not_coordinator
        except Trouble:
            pass  # the connection went with the node
        successor = await groups.next_coordinator(coordinator)
        await groups.until(successor, E.none, lambda: groups.beat(successor))
        reply = await groups.join(successor, second.member_id)
        assert reply.error_code is E.unknown_member_id

    play(seed, scenario)


@SEEDS
@pytest.mark.parametrize("away", ["asleep", "suspended"])
def test_a_coordinator_that_slept_refuses_no_commit_of_a_transaction_it_knows_nothing_of(
    seed: int, away: str
) -> None:
    """By what it has in memory nothing is open. INVALID_TXN_STATE would end the producer."""

    async def scenario(groups: Groups, _: int) -> None:
        producer = Producer(groups, "t")
        old = await producer.found()
        await groups.until(old, E.none, lambda: producer.init(old))
        assert await producer.add(old) is E.none
        assert await producer.commit(old) is E.none
        await asyncio.sleep(1.0)  # its markers are written
        (groups.world.pause if away == "asleep" else groups.world.suspend)(node_name(old))
        end = groups.world.loop.time() + 10
        while (one := await producer.coordinator(groups.others(old)[0])) in (old, -1) or isinstance(
            one, ErrorCode
        ):
            assert groups.world.loop.time() < end, "nobody took over"
            await asyncio.sleep(0.05)
        await groups.until(one, E.none, lambda: producer.add(one))
        groups.world.resume(node_name(old))
        try:
            assert await producer.commit(old) is E.not_coordinator
        except Trouble:
            pass  # no answer in its time
        assert await producer.commit(one) is E.none

    play(seed, scenario)
