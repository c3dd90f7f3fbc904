"""Where a partition ends, asked of a leader that others have deposed and that does not know yet."""

import asyncio

import pytest
from cluster_scene import TOPIC, Scene, play
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey

SEEDS = pytest.mark.parametrize("seed", range(3))
LATEST, EARLIEST = -1, -2


async def _asked(scene: Scene, node_id: int, timestamp: int = LATEST) -> int | ErrorCode | None:
    """The end that this node tells; None when it tells nothing."""
    wire = scene.client("asks").wire_to((node_name(node_id), 9092))
    asked = {"partition_index": 0, "timestamp": timestamp}
    ask = wire.request(ApiKey.list_offsets, topics=[{"name": TOPIC, "partitions": [asked]}])
    try:
        reply = await scene.world.on(scene.env, ask)
    except Trouble:
        return None
    answer = reply.topics[0].partitions[0]
    return answer.offset if answer.error_code is ErrorCode.none else answer.error_code


@SEEDS
@pytest.mark.parametrize("away", ["asleep", "cut off", "not heard"])
def test_a_leader_that_was_deposed_tells_no_end_of_long_ago(seed: int, away: str) -> None:
    """Who reads to the end that he is told believes to have read all that was acknowledged before he asked."""

    async def scenario(scene: Scene) -> None:
        old, others = scene.leader, scene.followers
        name = node_name(old)
        if away == "asleep":
            scene.world.pause(name)
        for other in others if away != "asleep" else ():
            scene.world.net.cut(name, node_name(other), one_way=away == "not heard")
        await scene.until("another leads", lambda: scene.leader != old)
        await scene.until_acknowledged(20)
        told = await _asked(scene, scene.leader)
        assert told is not None and not isinstance(told, ErrorCode)
        if away == "asleep":
            scene.world.resume(name)
        for _ in range(3):
            answer = await _asked(scene, old)
            assert answer is None or isinstance(answer, ErrorCode) or answer >= told
        scene.world.heal()
        await scene.nodes.until_whole()

    play(seed, scenario)


@SEEDS
def test_the_last_of_three_is_read_but_knows_no_end(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        last = scene.leader
        for other in scene.followers:
            scene.kill(other)
        await asyncio.sleep(4)
        assert await _asked(scene, last) is ErrorCode.offset_not_available
        assert await _asked(scene, last, EARLIEST) == 0
        assert await scene.read() > 0
        scene.nodes.start_all()
        await scene.nodes.until_whole()
        assert await _asked(scene, scene.leader) not in (None, ErrorCode.offset_not_available)

    play(seed, scenario)
