"""Full disks, the controller and the leads, told step by step; each ends with everything healed, whole, and nothing lost."""

import asyncio

import pytest
from cluster_scene import TOPIC, Scene, play
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.controller.commands import CreateTopics, NewTopic
from fencepost.cluster.controller.full_disks import CALM_MS

pytestmark = pytest.mark.slow
SEEDS = range(3)
SESSION_S = 9.0  # broker.session.timeout.ms
ALONE = "alone"
TURNS = 8


async def create_alone(scene: Scene, node_id: BrokerId) -> None:
    """A topic with one replica, on this node."""
    topic = NewTopic(name=ALONE, assignments=((0, (node_id,)),))
    work = scene.nodes.broker(node_id).controller.execute(CreateTopics(topics=(topic,)))
    await scene.world.on(scene.world.node(node_name(node_id)), work)
    await scene.until("its leader is known", lambda: scene.nodes.leader(ALONE, 0) == node_id)


def fill(scene: Scene, node_id: BrokerId) -> None:
    files = scene.world.disk(node_name(node_id)).files
    files.capacity = files.used


@pytest.mark.parametrize("was_controller", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_with_a_full_disk_follows_the_next_controller(
    seed: int, was_controller: bool
) -> None:
    """It could not write down the new term, so it followed nobody, and what only it has was without a leader."""

    async def scenario(scene: Scene) -> None:
        first = scene.nodes.controller()
        assert first is not None
        others = [each for each in scene.nodes.ids if each != first]
        full = first if was_controller else others[0]
        await create_alone(scene, full)
        fill(scene, full)
        if was_controller:
            await scene.until("another controls", lambda: scene.nodes.controller() in others)
        else:
            scene.kill(first)
            await asyncio.sleep(1.0)
            scene.nodes.start(first)
        await asyncio.sleep(SESSION_S + 3.0)
        assert scene.nodes.controller() not in (None, full)
        assert scene.nodes.leader(ALONE, 0) == full
        scene.world.disk(node_name(full)).files.capacity = None

    play(seed, scenario)


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_leads_do_not_go_to_and_fro_with_a_disk_that_is_full_by_turns(seed: int) -> None:
    """Retention makes room, its leads come back, and their writes fill it again: 23 moves in two minutes."""

    async def scenario(scene: Scene) -> None:
        scene.producer.pause_s = 0.5  # it has to be read again in the end
        first = scene.leader
        files = scene.world.disk(node_name(first)).files
        leaders = [first]
        fill(scene, first)
        for turn in range(TURNS):
            files.capacity = files.used if turn % 2 == 0 else None
            for _ in range(30):
                await asyncio.sleep(0.1)
                now = scene.nodes.leader(TOPIC, 0)
                if now not in (None, leaders[-1]):
                    leaders.append(now)
        assert len(leaders) == 2
        files.capacity = None
        within_s = CALM_MS / 1000 + 10
        await scene.until("its leads come back", lambda: scene.leader == first, within_s=within_s)

    play(seed, scenario, config=["leader.imbalance.check.interval.seconds=1"])
