"""Voters are replaced while the cluster is written to."""

import asyncio

import pytest
from cluster_scene import Scene, play
from fencepost.chaos.sim.cluster_faults import ClusterFaults
from fencepost.chaos.sim.cluster_members import _has_replicas, _leave, _move_away, change_voters
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.sim.plan import Plan
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient


async def change(scene: Scene, key: ApiKey, voter: int, asked: int) -> None:
    wire = WireClient(scene.env, node_name(asked), 9092, timeout_s=60)
    more = {"timeout": 15_000, "listeners": []} if key is ApiKey.add_raft_voter else {}
    work = wire.request(key, cluster_id=None, voter_id=voter, voter_directory_id=None, **more)
    reply = await scene.world.on(scene.env, work)
    assert reply.error_code is ErrorCode.none, reply
    await scene.world.on(scene.env, wire.close())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_three_voters_are_replaced_one_at_a_time_under_load(seed: int) -> None:
    """The whole first set goes, then the controller dies, then everybody: nothing is lost and nobody waits for long."""

    async def scenario(scene: Scene) -> None:
        for old, new in ((1, 4), (2, 5), (3, 6)):
            await change(scene, ApiKey.add_raft_voter, new, asked=new)
            await change(scene, ApiKey.remove_raft_voter, old, asked=new)
            await scene.until_acknowledged(10)
            await scene.nodes.stop(old)  # it comes back as a node that follows
            scene.nodes.start(old)
            await scene.nodes.until_whole()
        for each in scene.nodes.ids:
            assert sorted(scene.nodes.broker(each).quorum.voters) == [4, 5, 6]
        controller = scene.nodes.controller()
        assert controller in (4, 5, 6)
        scene.kill(controller)
        await scene.until(
            "another of the three leads",
            lambda: scene.nodes.controller() in {4, 5, 6} - {controller},
        )
        await scene.until_acknowledged(10)
        # All at once: each finds the voters of now, whatever its settings say.
        for each in scene.nodes.ids:
            scene.kill(each)
        for each in scene.nodes.ids:
            scene.nodes.start(each)
        await scene.until_acknowledged(10)
        assert scene.nodes.controller() in (4, 5, 6)

    play(seed, scenario, count=6)


def test_a_newcomer_finds_a_leader_that_its_settings_do_not_name() -> None:
    """One voter of the settings is left, which follows: the leader has never heard of the newcomer, nor it of the leader."""

    async def scenario(scene: Scene) -> None:
        for old, new in ((1, 4), (2, 5)):
            await change(scene, ApiKey.add_raft_voter, new, asked=3)
            await change(scene, ApiKey.remove_raft_voter, old, asked=3)
        scene.kill(3)
        await scene.until("one of the new leads", lambda: scene.nodes.controller() in (4, 5))
        scene.nodes.start(3)
        await scene.nodes.until_ready()
        newcomer = BrokerId(6)
        scene.nodes.ids.append(newcomer)
        scene.nodes.start(newcomer)
        await scene.nodes.until_ready()
        assert scene.nodes.controller() in (4, 5)

    play(0, scenario, count=5)


# --- who leaves for good --------------------------------------------------------------------------


def leaving(scene: Scene, node_id: int) -> ClusterFaults:
    faults = ClusterFaults(
        scene.world, scene.nodes, scene.watch, [], Plan(campaign="cluster", seed=0)
    )
    faults.leaving = BrokerId(node_id)
    return faults


def test_nobody_makes_a_voter_of_a_node_that_is_leaving() -> None:
    """Gone for good it would be missed in every vote, and with one more node all would stand still."""

    async def scenario(scene: Scene) -> None:
        await change(scene, ApiKey.remove_raft_voter, 3, asked=1)
        faults = leaving(scene, 3)
        for _ in range(3):
            await change_voters(faults)
            await scene.nodes.until_whole()
            assert 3 not in scene.nodes.broker(1).quorum.voters
        assert sorted(scene.nodes.broker(1).quorum.voters) == [1, 2]

    play(0, scenario)


def test_a_node_that_votes_yet_is_not_taken_off_the_list() -> None:
    """As `fencepost node forget` has it; somebody had asked for its vote before it began to leave."""

    async def scenario(scene: Scene) -> None:
        faults = leaving(scene, 4)
        await change(scene, ApiKey.add_raft_voter, 4, asked=1)
        while _has_replicas(faults, BrokerId(4)):
            await _move_away(faults, BrokerId(4))
            await asyncio.sleep(0.1)
        async with asyncio.timeout(10):
            await _leave(faults, BrokerId(4))
        assert 4 in scene.nodes.ids
        scene.nodes.start(4)
        await scene.nodes.until_whole()
        assert 4 in scene.nodes.broker(1).image.brokers

    play(0, scenario, count=4)
