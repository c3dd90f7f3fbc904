"""Nodes of an older build in a cluster of newer ones, and brokers that come and go."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from cluster_scene import TOPIC, Scene
from fencepost.chaos.sim.cluster import ClusterRun
from fencepost.chaos.sim.cluster_admin import Admin
from fencepost.chaos.sim.cluster_builds import Build, builds_of
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.sim.limits import small_limits
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.metadata import levels
from fencepost.cluster.metadata.codec import CommandUnreadable
from fencepost.cluster.metadata.records import PartitionsCreated


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    """Nodes may end, if it is of what they can't read."""
    with World(
        3, time_limit_s=600, deaths_allowed=lambda _, why: isinstance(why, CommandUnreadable)
    ) as world:
        scene = Scene(world)
        with builds_of(scene.nodes):
            world.run(scenario(scene))


@pytest.mark.slow
def test_a_node_that_does_not_know_a_command_ends_with_a_sentence_and_the_others_go_on() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        older = next(id_ for id_ in scene.followers if id_ != scene.nodes.controller())
        scene.nodes.builds[older] = Build(commands=frozenset({PartitionsCreated.TYPE}))
        scene.kill(older)
        scene.nodes.start(older)
        await scene.nodes.until_whole()
        admin = Admin(scene.client("admin"), scene.nodes, TOPIC)
        with contextlib.suppress(Trouble):  # it may have been that node which was asked
            await scene.world.on(scene.env, admin._grow())
        await scene.until("it has ended", lambda: not scene.nodes.is_up(older))
        ((name, reason),) = scene.world.deaths
        assert name == node_name(older)
        assert isinstance(reason, CommandUnreadable)
        assert "start this node with at least that version" in str(reason)
        await scene.until_acknowledged(20)
        del scene.nodes.builds[older]
        await scene.finish()

    play(scenario)


@pytest.mark.slow
def test_nodes_are_upgraded_one_by_one_and_the_older_ones_read_all_that_is_written() -> None:
    """The first one that is upgraded leads the quorum, and nobody ends: each is a node that a cluster of three needs."""

    async def move_to_today(scene: Scene, node_id: int) -> None:
        await scene.nodes.until_whole()
        await scene.nodes.stop(node_id)
        del scene.nodes.builds[node_id]
        scene.nodes.start(node_id)
        await scene.nodes.until_whole()

    async def scenario(scene: Scene) -> None:
        scene.nodes.builds = dict.fromkeys(scene.nodes.ids, Build(reads=levels.OLDEST))
        await scene.start()
        first, *others = scene.nodes.ids
        await move_to_today(scene, first)
        while scene.nodes.controller() != first:
            node_id = scene.nodes.controller()
            assert node_id is not None
            await scene.nodes.stop(node_id)
            await scene.until("another leads", lambda: scene.nodes.controller() is not None)
            scene.nodes.start(node_id)
            await scene.nodes.until_whole()
        image = scene.nodes.broker(first).image
        for node_id in others:
            scene.kill(node_id)
            await scene.until("it is missed", lambda id_=node_id: image.brokers[id_].fenced)
            assert levels.level_of(image) == levels.OLDEST
            scene.nodes.start(node_id)
            await scene.nodes.until_whole()
        for node_id in others:
            await move_to_today(scene, node_id)
        assert levels.level_of(image) == levels.NEWEST
        assert image.brokers[others[-1]].disk == scene.nodes.broker(others[-1]).folder.disk_id
        await scene.until_acknowledged(20)
        await scene.finish()

    with World(3, time_limit_s=600) as world:
        scene = Scene(world)
        with small_limits(), builds_of(scene.nodes):
            world.run(scenario(scene))
    assert world.deaths == []


@pytest.mark.slow
def test_a_build_that_can_not_read_what_is_written_says_what_it_needs() -> None:
    """Somebody starts the older one again when all were upgraded."""

    async def scenario(scene: Scene) -> None:
        await scene.start()
        older = next(id_ for id_ in scene.followers if id_ != scene.nodes.controller())
        scene.nodes.builds[older] = Build(reads=levels.OLDEST)
        scene.kill(older)
        scene.nodes.start(older)
        await scene.until("it has ended", lambda: not scene.nodes.is_up(older))
        ((_, reason),) = scene.world.deaths
        assert str(reason) == (
            "Metadata command 2 (BrokerRegistered) has version 2; this version of Fencepost reads 1 to 1. "
            "Start this node with a newer one."
        )
        del scene.nodes.builds[older]
        await scene.finish()

    play(scenario)


@pytest.mark.slow
def test_brokers_come_and_go_for_good_while_topics_move() -> None:
    """The seed's six seconds have both."""
    plan = Plan(
        campaign="cluster", seed=3, nodes=3, faults=("broker-comes", "broker-goes"), seconds=6.0
    )
    run = ClusterRun(plan)
    run.run()
    counts = run.world.trace.counts
    assert counts["comes"] > 0
    assert counts["goes"] > 0
    assert len(run.nodes.ids) == 3 + counts["comes"] - counts["goes"]


def test_what_one_build_lacks_the_others_find() -> None:
    from fencepost.cluster.metadata import codec

    async def scenario(world: World) -> None:
        scene = Scene(world)
        scene.nodes.running["node-1"] = Build(commands=frozenset({PartitionsCreated.TYPE}))
        number = PartitionsCreated.TYPE

        async def known() -> bool:
            await asyncio.sleep(0)
            return codec.COMMANDS.get(number) is not None

        with builds_of(scene.nodes):
            assert not await world.on(world.node("node-1"), known())
            assert await world.on(world.node("node-2"), known())
            assert await known()
        assert await world.on(world.node("node-1"), known())

    with World(1) as world:
        world.run(scenario(world))
