"""A new set of voters counts when the one before it has it, too, and is written twice: the second time says so."""

import asyncio
import contextlib

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.quorum.held import HeldSyncObj
from fencepost.cluster.quorum.voters import VoterSets
from support.quorum_nodes import Nodes

NEW = 3
OF_ONE, OF_TWO = {1: ("n1", 1)}, {1: ("n1", 1), 2: ("n2", 1)}


async def change(nodes: Nodes, leader: int, **what: object) -> None:
    work = nodes.quorums[leader].change_voters(**what)
    await nodes.world.on(nodes.env(leader), work)


def sets_of(nodes: Nodes, node_id: int) -> list[list[int]]:
    raft = nodes.quorums[node_id]._raft
    assert raft is not None
    return [sorted(voters) for _, voters in raft.sets._sets]


async def who_leads_and_who_not(nodes: Nodes) -> tuple[int, int]:
    leader = await nodes.leader()
    await nodes.alike()
    return leader, 3 - leader


def test_a_set_is_settled_when_it_is_there_twice_or_first() -> None:
    sets = VoterSets(0, OF_ONE)
    assert sets.is_settled
    sets.add(5, OF_TWO)
    assert not sets.is_settled
    sets.add(6, OF_TWO)
    assert sets.is_settled
    sets.cut_from(6)
    assert not sets.is_settled
    sets.forget_before(5)
    assert sets.is_settled


def test_what_a_new_voter_and_one_of_two_have_is_not_committed_until_the_other_knows_of_it(
    world: World,
) -> None:
    """The one that knew had its disk replaced: the other was elected by both, and lacked it (seed 219)."""
    nodes = Nodes(world, voters=2, observers=1)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("before")
        leader, other = await who_leads_and_who_not(nodes)
        world.net.isolate(host_of(other))
        told = {"before"}
        for work in (change(nodes, leader, add=(NEW, nodes.peers[NEW])), tell(nodes, leader, told)):
            with contextlib.suppress(Trouble, TimeoutError):
                await asyncio.wait_for(work, 0.1)
        world.net.heal_all()
        world.net.isolate(host_of(NEW))
        nodes.kill(leader)
        world.restart(host_of(leader)).disk.remove_tree("/data/quorum")
        await nodes.start(leader)
        await nodes.agree("after")
        world.net.heal_all()
        await nodes.alike()
        assert told | {"after"} <= nodes.settings(NEW).keys()

    world.run(scenario())


async def tell(nodes: Nodes, leader: int, told: set[str]) -> None:
    await nodes.propose(leader, "of a new voter")
    told.add("of a new voter")


def test_what_was_under_way_when_a_voter_came_waits_for_those_who_voted_before(
    world: World,
) -> None:
    """One of two has a slow disk. A new voter and the other are a majority of three, and it knows of two (seed 55309)."""
    nodes = Nodes(world, voters=2, observers=1)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("before")
        leader, other = await who_leads_and_who_not(nodes)
        world.disk(host_of(other)).faults.sync_s = (2.0, 2.0)
        told: set[str] = set()
        telling = asyncio.ensure_future(tell(nodes, leader, told))
        await asyncio.sleep(0.05)
        adding = asyncio.ensure_future(change(nodes, leader, add=(NEW, nodes.peers[NEW])))
        await asyncio.sleep(1)
        assert sets_of(nodes, leader)[-1] == [1, 2, NEW], "it is not added yet"
        assert not told
        await asyncio.gather(telling, adding)
        await nodes.alike(timeout_s=20)

    world.run(scenario())


def test_who_voted_before_is_not_needed_any_more_when_it_is_done(world: World) -> None:
    """Whoever leads next finds the set in its log, and not whether it was committed."""
    nodes = Nodes(world, voters=2, observers=1)

    async def scenario() -> None:
        await nodes.start()
        leader, other = await who_leads_and_who_not(nodes)
        await change(nodes, leader, add=(NEW, nodes.peers[NEW]))
        nodes.kill(leader)
        await nodes.agree("without the leader")
        for each in (other, NEW):
            nodes.restart(each)
        await nodes.start(other, NEW)
        await nodes.agree("after a start without it")
        assert sets_of(nodes, other) == [[1, 2], [1, 2, NEW], [1, 2, NEW]]

    world.run(scenario())


def test_a_leader_settles_what_the_one_before_it_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of an older build does, which writes a set once."""
    monkeypatch.setattr(HeldSyncObj, "submit_voters", submit_once)
    nodes = Nodes(world, voters=2, observers=1)

    async def scenario() -> None:
        await nodes.start()
        leader, other = await who_leads_and_who_not(nodes)
        await change(nodes, leader, add=(NEW, nodes.peers[NEW]))
        assert sets_of(nodes, leader) == [[1, 2], [1, 2, NEW]]
        nodes.kill(leader)
        with pytest.raises(TimeoutError):
            await nodes.agree("of the others alone", timeout_s=5)
        nodes.restart(leader)
        await nodes.start(leader)
        await nodes.agree("of all")
        await nodes.alike()
        await asyncio.sleep(1)
        assert sets_of(nodes, other) == [[1, 2], [1, 2, NEW], [1, 2, NEW]]
        nodes.kill(leader)
        await nodes.agree("of the others alone")

    world.run(scenario())


def submit_once(self: HeldSyncObj, packed: bytes, callback: object) -> None:
    self._submitted.append((bytes([2]) + packed, callback))


def test_the_last_voter_waits_for_the_one_that_makes_it_so(world: World) -> None:
    """It needs nobody's vote: standing as soon as it had the set, it ended the lead of whoever was about to settle it."""
    nodes = Nodes(world, voters=2)

    async def scenario() -> None:
        await nodes.start()
        leader, other = await who_leads_and_who_not(nodes)
        await change(nodes, leader, remove=leader)
        await nodes.leader(among=[other])
        nodes.kill(leader)
        await nodes.agree("alone")

    world.run(scenario())


def test_the_last_voter_leads_when_the_one_that_made_it_so_is_gone(world: World) -> None:
    nodes = Nodes(world, voters=2)

    async def scenario() -> None:
        await nodes.start()
        leader, other = await who_leads_and_who_not(nodes)
        removal = asyncio.ensure_future(change(nodes, leader, remove=leader))
        while sets_of(nodes, other)[-1] != [other]:
            await asyncio.sleep(0.0001)
        world.net.isolate(host_of(leader))
        await nodes.leader(among=[other])
        world.net.heal_all()
        await nodes.agree("alone")
        with contextlib.suppress(Trouble):
            await removal

    world.run(scenario())
