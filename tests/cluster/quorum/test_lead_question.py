"""A leader that asks whether it leads still."""

import asyncio
from collections.abc import Iterator

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.quorum.raft_leader import LEASE_S
from fencepost.cluster.quorum.redirected import in_world
from support.quorum_nodes import Nodes


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as world:
        yield world


def confirm(nodes: Nodes, node_id: int) -> "asyncio.Future[bool]":
    quorum = nodes.quorums[node_id]
    return asyncio.ensure_future(nodes.world.on(nodes.env(node_id), quorum.confirm_lead()))


def test_a_majority_says_so_within_a_round_trip(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        follower, other = [each for each in nodes.ids if each != leader]
        nodes.kill(other)
        asked = world.loop.time()
        answers = [confirm(nodes, leader) for _ in range(50)]
        assert await asyncio.gather(*answers) == [True] * 50
        assert (
            world.loop.time() - asked < 0.02
        )  # the first one asks alone, the others share a question
        assert not await confirm(nodes, follower)

    world.run(scenario())


def test_a_voter_alone_asks_nobody(world: World) -> None:
    nodes = Nodes(world, voters=1)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        asked = world.loop.time()
        assert await confirm(nodes, leader)
        assert world.loop.time() == asked

    world.run(scenario())


def test_what_was_said_before_the_question_confirms_nothing(world: World) -> None:
    """Not even in the same instant: its clock may have stood still between the two."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        raft = nodes.quorums[leader]._raft
        assert raft is not None
        clock = world.machine(host_of(leader)).steady
        clock.stop()
        with in_world(nodes.env(leader)):
            raft.replicate()
        await asyncio.sleep(0.1)
        assert raft.lease_end() == clock.now() + LEASE_S  # what was said then is answered
        for each in nodes.ids:
            if each != leader:
                world.net.cut(host_of(leader), host_of(each), one_way=True)
        answer = confirm(nodes, leader)
        await asyncio.sleep(0.1)
        assert not answer.done()
        clock.go_on()
        assert not await answer  # its lease ends, and with it the question

    world.run(scenario())


def test_a_machine_that_was_suspended_does_not_lead_by_its_lease_alone(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        old = await nodes.leader()
        others = [each for each in nodes.ids if each != old]
        world.suspend(host_of(old))
        new = await nodes.leader(among=others)
        await nodes.propose(new, "later")
        world.resume(host_of(old))
        assert nodes.quorums[old].is_leader  # as its clock says
        assert not await confirm(nodes, old)
        assert await confirm(nodes, new)

    world.run(scenario())


def test_whoever_waits_is_told_when_the_node_stops(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        world.net.isolate(host_of(leader))
        answers = [confirm(nodes, leader) for _ in range(3)]
        await asyncio.sleep(0.05)
        await world.on(nodes.env(leader), nodes.quorums[leader].stop())
        assert await asyncio.gather(*answers) == [False] * 3

    world.run(scenario())
