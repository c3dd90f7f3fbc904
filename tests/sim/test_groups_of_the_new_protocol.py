"""The member of the new protocol that exactly-once workloads stand on, against real (simulated) coordinators."""

import asyncio

import pytest
from fencepost.chaos.sim.cluster_admin import Admin
from fencepost.chaos.sim.cluster_nodes import ClusterNodes
from fencepost.chaos.sim.consumers_scene import Consumers
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_client import ClusterClient
from fencepost.chaos.workloads.consumer_member import ConsumerMember
from fencepost.chaos.workloads.txn_answers import Partition

pytestmark = pytest.mark.slow
PLACES: list[Partition] = [("in", each) for each in range(3)]
SESSION_S = 1.0  # as the scene has them


async def rounds(world: World, members: list[ConsumerMember], seconds: float) -> None:
    """Nobody ever holds what another does."""
    end = world.loop.time() + seconds
    while world.loop.time() < end:
        for each in members:
            async with asyncio.timeout(60):
                await world.on(each.client.env, each.rejoined())
            held = [place for one in members for place in one.mine]
            assert len(held) == len(set(held)), held
        await asyncio.sleep(0.1)


def held_by(members: list[ConsumerMember]) -> list[Partition]:
    return sorted(place for each in members for place in each.mine)


def test_members_share_the_partitions_and_take_over_those_of_one_that_crashed() -> None:
    with World(3, time_limit_s=600) as world:
        nodes = ClusterNodes(world, 1, config=Consumers.config)

        def client(name: str) -> ClusterClient:
            return ClusterClient(world.node("client"), nodes.addresses, name=name)

        async def scenario() -> None:
            nodes.start_all()
            await nodes.until_ready()
            admin = Admin(client("admin"), nodes, "in")
            assert await world.on(admin.client.env, admin.create("in", 3)) == "none"
            members = [ConsumerMember(client(name), "g", PLACES) for name in "abc"]
            await rounds(world, members[:1], 2.0)
            assert held_by(members[:1]) == PLACES
            await rounds(world, members, 5.0)
            assert held_by(members) == PLACES
            assert [len(each.mine) for each in members] == [1, 1, 1]
            crashed, *others = members
            await rounds(world, others, SESSION_S + 4.0)
            assert held_by(others) == PLACES
            assert await world.on(crashed.client.env, crashed.rejoined()), "it was fenced"
            assert crashed.mine == []
            for each in (crashed, others[0]):
                await world.on(each.client.env, each.leave())
            await rounds(world, others[1:], 3.0)
            assert held_by(others[1:]) == PLACES

        world.run(scenario())
