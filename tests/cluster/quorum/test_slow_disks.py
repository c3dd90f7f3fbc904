"""Voters whose disks are all slow, as those of one storage are: there is no better one to make room for."""

import asyncio
import errno

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.quorum import store
from fencepost.cluster.quorum.store import STALLED_S
from support.quorum_nodes import Nodes


def _sync_in(nodes: Nodes, seconds: float) -> None:
    for each in nodes.ids:
        nodes.world.disk(host_of(each)).faults.sync_s = (seconds, seconds)


@pytest.mark.parametrize("sync_s", [1.2 * STALLED_S, 5 * STALLED_S])
def test_where_no_voter_has_a_better_disk_one_leads_all_the_same(
    world: World, sync_s: float
) -> None:
    """Each that was elected made room for the next one, a moment before its entry was on the disk, for as long as that lasted."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("before")
        _sync_in(nodes, sync_s)
        await nodes.agree("first", timeout_s=30 * sync_s)
        leader = await nodes.leader()
        term = nodes.quorums[leader].term
        for number in range(3):
            await nodes.propose(leader, f"s{number}")
        assert nodes.quorums[leader].term == term, "nobody else was elected meanwhile"

    world.run(scenario())


def test_a_disk_that_has_become_fast_again_is_waited_for_no_longer_than_before(
    world: World,
) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        _sync_in(nodes, 1.2 * STALLED_S)
        await nodes.agree("slow")
        _sync_in(nodes, 0.001)
        await asyncio.sleep(3)
        for number in range(10):
            await nodes.agree(f"s{number}")
        old = await nodes.leader()
        world.disk(host_of(old)).faults.sync_s = (30.0, 30.0)
        asked = asyncio.ensure_future(nodes.propose(old, "hangs"))
        start = world.loop.time()
        await nodes.leader(among=[each for each in nodes.ids if each != old])
        assert world.loop.time() - start < 3
        asked.cancel()

    world.run(scenario())


def test_a_follower_whose_disk_is_always_behind_takes_snapshots_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for a moment in which all was durable: its log grew, in memory and on the disk, as long as there was work."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 50)
    nodes = Nodes(world, voters=3)

    async def works(leader: int, name: str) -> None:
        for number in range(200):
            await nodes.propose(leader, name, str(number))
            await asyncio.sleep(0.02)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        slow = next(each for each in nodes.ids if each != leader)
        world.disk(host_of(slow)).faults.sync_s = (0.3, 0.3)
        longest = 0
        doing = [asyncio.ensure_future(works(leader, f"s{each}")) for each in range(8)]
        while not all(each.done() for each in doing):
            longest = max(longest, len(nodes.quorums[slow]._journal))
            await asyncio.sleep(0.05)
        await asyncio.gather(*doing)
        await nodes.alike(timeout_s=20)
        assert longest < 400, longest

    world.run(scenario())


def test_voters_that_all_start_without_room_for_a_vote_elect_when_there_is_some(
    world: World,
) -> None:
    """On disks that take nothing even to write over. Nothing that came later said that there was room again."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("before")
        for each in nodes.ids:
            nodes.kill(each)
            for kind in ("write_at", "sync"):
                faults = world.disk(host_of(each)).faults
                faults.fail(kind, path="*/vote*", number=errno.ENOSPC, times=10**6)
        for each in nodes.ids:
            nodes.restart(each)
            await nodes.start(each)
        await asyncio.sleep(5)
        for each in nodes.ids:
            world.disk(host_of(each)).faults.planned.clear()
        await nodes.agree("after", timeout_s=30)

    world.run(scenario())
