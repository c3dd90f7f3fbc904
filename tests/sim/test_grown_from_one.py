"""A cluster that was one voter on its first day, and whose settings still say so; later the disk of that one is lost."""

import asyncio

import pytest
from fencepost.chaos.sim.cluster_admin import Admin
from fencepost.chaos.sim.cluster_disks import empty_disk
from fencepost.chaos.sim.cluster_nodes import ClusterNodes, node_name
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_client import ClusterClient
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.quorum.first_day import LISTEN_S

FIRST = ["controller.quorum.voters=1@node-1:9192"]


async def grown(world: World) -> ClusterNodes:
    nodes = ClusterNodes(world, 3, config=FIRST)
    nodes.start_all()
    await nodes.until_ready()
    for each in (2, 3):
        controller = nodes.controller()
        quorum = nodes.broker(controller).quorum
        add = BrokerId(each), (node_name(each), 9192)
        await world.on(world.node(node_name(controller)), quorum.change_voters(add=add))
    await nodes.until_whole()
    return nodes


async def create(world: World, nodes: ClusterNodes, topic: str) -> str:
    up = [(node_name(each), 9092) for each in nodes.up()]
    admin = Admin(ClusterClient(world.node("client"), up, name=topic), nodes, topic)
    return await world.on(world.node("client"), admin.create(topic, 1))


def test_the_first_voter_with_an_empty_disk_comes_back_into_its_cluster() -> None:
    """It made another cluster, under the address that clients know."""

    async def scenario(world: World) -> None:
        nodes = await grown(world)
        world.kill("node-1")
        await asyncio.sleep(3)
        empty_disk(world, "node-1")
        nodes.start(1)
        await nodes.until_whole()
        assert len({nodes.broker(each).image.cluster_id for each in nodes.ids}) == 1
        assert [nodes.broker(each).is_ready for each in nodes.ids] == [True] * 3

    with World(1, time_limit_s=600) as world:
        world.run(scenario(world))


@pytest.mark.parametrize("sync_s", [0.02, 0.1, 0.3])
def test_the_first_voters_lost_disk_takes_nothing_that_was_committed_with_it(sync_s: float) -> None:
    """Committed by 1 and 3 while 2 is down; all go down, the disk of 1 is lost, 3 is the last to come back."""

    async def scenario(world: World) -> None:
        nodes = await grown(world)
        assert await create(world, nodes, "stream") == "none"
        await nodes.until_whole()
        for each in (1, 2):  # terms go by: another one leads
            world.kill(node_name(each))
            await asyncio.sleep(4)
            nodes.start(each)
            await nodes.until_whole()
        world.kill("node-2")
        await asyncio.sleep(4)
        assert await create(world, nodes, "acknowledged") == "none"
        await asyncio.sleep(1)
        world.kill("node-3")
        world.kill("node-1")
        nodes.start(2)
        await asyncio.sleep(3)
        empty_disk(world, "node-1")
        faults = world.disk("node-1").faults
        faults.slow_sync_odds, faults.slow_sync_s = 1.0, (sync_s, 1.5 * sync_s)
        nodes.start(1)
        await asyncio.sleep(10)
        said = nodes.broker(1).peers.why_nobody_leads()
        assert said is not None and "node 2 belongs to a cluster" in said
        faults.slow_sync_odds = 0.0
        nodes.start(3)
        await nodes.until_whole()
        for each in nodes.ids:
            assert nodes.broker(each).is_ready
            assert "acknowledged" in nodes.broker(each).image.topics, f"lost on node {each}"

    with World(1, time_limit_s=600) as world:
        world.run(scenario(world))


@pytest.mark.parametrize("late_s", [-0.3, -0.1, 0.0, 0.1, 0.4, 1.0])
def test_who_began_a_cluster_alone_takes_nobody_of_another_into_it(late_s: float) -> None:
    """All others were down for as long as it listened, and come while it writes the first lines of its own."""

    async def scenario(world: World) -> None:
        nodes = await grown(world)
        assert await create(world, nodes, "acknowledged") == "none"
        await nodes.until_whole()
        for each in nodes.ids:
            world.kill(node_name(each))
        empty_disk(world, "node-1")
        faults = world.disk("node-1").faults
        faults.slow_sync_odds, faults.slow_sync_s = 1.0, (0.2, 0.4)
        nodes.start(1)
        await asyncio.sleep(LISTEN_S + late_s)
        nodes.start(2)
        await asyncio.sleep(1)
        nodes.start(3)
        await asyncio.sleep(15)
        faults.slow_sync_odds = 0.0
        await asyncio.sleep(5)
        ready = [each for each in nodes.up() if nodes.broker(each).is_ready]
        assert {2, 3} <= set(ready)
        assert all("acknowledged" in nodes.broker(each).image.topics for each in (2, 3))
        of_one = nodes.broker(1).image
        assert ("acknowledged" in of_one.topics) == (
            of_one.cluster_id == nodes.broker(2).image.cluster_id
        )

    with World(1, time_limit_s=600) as world:
        world.run(scenario(world))
