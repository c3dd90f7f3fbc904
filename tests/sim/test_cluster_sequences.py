"""Sequences of a producer, asked of a leader that others have deposed and that does not know yet."""

import asyncio

import pytest
from cluster_scene import TOPIC, Scene, play
from fencepost.chaos.checkers.history import Operation
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch

SEEDS = pytest.mark.parametrize("seed", range(3))
PRODUCER_ID = 77_000  # of no block that was given out: nobody's but these tests'


async def _written(scene: Scene, node_id: int, sequence: int) -> ErrorCode:
    """A batch of one record, by a producer that has been acknowledged all before it."""
    image = scene.nodes.image
    assert image is not None
    value = f"steady/{sequence}".encode()
    sent = Operation("send", "info", "steady", f"{TOPIC}-0", sequence, error="nobody's producer")
    scene.history.append(sent)
    batch = build_batch(
        [Record(0, scene.env.clock.now_ms(), None, value, ())],
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
    )
    part = {"index": 0, "records": batch}
    topic = {"topic_id": image.topics[TOPIC].topic_id, "partition_data": [part]}
    wire = scene.client("steady").wire_to((node_name(node_id), 9092))
    ask = wire.request(ApiKey.produce, acks=-1, timeout=5000, topic_data=[topic])
    reply = await scene.world.on(scene.env, ask)
    code: ErrorCode = reply.responses[0].partition_responses[0].error_code
    return code


@SEEDS
@pytest.mark.parametrize("away", ["asleep", "not heard"])
def test_a_leader_that_was_deposed_calls_nothing_out_of_order(seed: int, away: str) -> None:
    """Seed 126899 of the cluster: it woke, was asked for what goes on behind its successor's, and had never heard of that."""

    async def scenario(scene: Scene) -> None:
        old, others = scene.leader, scene.followers
        name = node_name(old)
        assert await _written(scene, old, 0) is ErrorCode.none
        if away == "asleep":
            scene.world.pause(name)
        for other in others if away != "asleep" else ():
            scene.world.net.cut(name, node_name(other), one_way=True)
        await scene.until("another leads", lambda: scene.leader != old)
        for sequence in (1, 2):
            assert await _written(scene, scene.leader, sequence) is ErrorCode.none
        asked = asyncio.ensure_future(_written(scene, old, 3))
        await asyncio.sleep(0.1)
        scene.world.resume(name)
        assert await asked is ErrorCode.not_leader_or_follower
        scene.world.heal()
        await scene.nodes.until_whole()
        assert await _written(scene, scene.leader, 3) is ErrorCode.none

    play(seed, scenario)


@SEEDS
def test_who_leads_calls_out_of_order_what_is(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        assert await _written(scene, scene.leader, 0) is ErrorCode.none
        told = await _written(scene, scene.leader, 2)
        assert told is ErrorCode.out_of_order_sequence_number

    play(seed, scenario)
