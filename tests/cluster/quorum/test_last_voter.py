"""The only voter that is left, and who was the other one."""

import asyncio

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.quorum.voters import VoterChangeRefused
from support.quorum_nodes import Nodes


@pytest.mark.parametrize("seed", range(6))
def test_who_was_one_of_two_has_heard_that_it_votes_no_more(seed: int) -> None:
    """Or somebody is told: by the set that it knows it would be elected with the vote of a voter that has lost its disk."""

    async def scenario(world: World) -> None:
        nodes = Nodes(world, voters=2, observers=1)
        await nodes.start()
        await nodes.agree("first")
        left = await nodes.leader()
        await nodes.alike()
        removed = 3 - left
        if seed % 2:
            world.net.isolate(host_of(removed))
        work = nodes.quorums[left].change_voters(remove=removed)
        if seed % 2:
            with pytest.raises(
                VoterChangeRefused, match=f"Node {removed} .* has not heard"
            ) as late:
                await world.on(nodes.env(left), work)
            assert late.value.error_code is ErrorCode.request_timed_out
            assert list(nodes.quorums[left].voters) == [left], "it is done all the same"
            await nodes.propose(left, "alone")
            world.net.heal_all()
            await nodes.alike()
        else:
            await world.on(nodes.env(left), work)
            nodes.kill(removed)
            world.restart(host_of(removed))
        await world.on(nodes.env(left), nodes.quorums[left].change_voters(add=(3, nodes.peers[3])))
        await nodes.propose(left, "told")
        nodes.kill(left)
        world.restart(host_of(left)).disk.remove_tree("/data/quorum")
        await nodes.start(left, *([] if seed % 2 else [removed]))
        await nodes.alike()
        await asyncio.sleep(5)
        assert [each for each in (1, 2, 3) if "told" not in nodes.settings(each)] == []

    with World(seed) as world:
        world.run(scenario(world))
