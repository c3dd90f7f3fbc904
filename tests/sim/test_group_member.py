"""The small group member that exactly-once workloads stand on, against real (simulated) coordinators."""

import asyncio

import pytest
from fencepost.chaos.sim.cluster_admin import Admin
from fencepost.chaos.sim.cluster_nodes import ClusterNodes
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_client import ClusterClient
from fencepost.chaos.workloads.group_member import SESSION_TIMEOUT_MS, GroupMember

pytestmark = pytest.mark.slow


async def rounds(world: World, members: list[GroupMember], seconds: float) -> None:
    end = world.loop.time() + seconds
    while world.loop.time() < end:
        joining = [world.on(each.client.env, each.rejoined()) for each in members]
        async with asyncio.timeout(60):
            await asyncio.gather(*joining)
        await asyncio.sleep(0.2)


def test_members_share_the_partitions_and_take_over_those_of_one_that_crashed() -> None:
    with World(3, time_limit_s=600) as world:
        nodes = ClusterNodes(world, 1)

        def client(name: str) -> ClusterClient:
            return ClusterClient(world.node("client"), nodes.addresses, name=name)

        async def scenario() -> None:
            nodes.start_all()
            await nodes.until_ready()
            admin = Admin(client("admin"), nodes, "in")
            assert await world.on(admin.client.env, admin.create("in", 3)) == "none"
            members = [
                GroupMember(client(name), "g", [("in", each) for each in range(3)])
                for name in "abc"
            ]
            await rounds(world, members, 5.0)
            generations = {each.generation for each in members}
            assert len(generations) == 1
            assert sorted(place for each in members for place in each.mine) == [
                ("in", 0),
                ("in", 1),
                ("in", 2),
            ]
            crashed, *others = members
            await rounds(world, others, SESSION_TIMEOUT_MS / 1000 + 5.0)
            assert sorted(place for each in others for place in each.mine) == [
                ("in", 0),
                ("in", 1),
                ("in", 2),
            ]
            assert others[0].generation > crashed.generation
            await world.on(others[0].client.env, others[0].leave())
            await rounds(world, others[1:], 3.0)
            assert len(others[1].mine) == 3

        world.run(scenario())
