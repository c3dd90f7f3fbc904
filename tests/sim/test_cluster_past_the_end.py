"""A consumer's position of now, asked of a leader that others have deposed and that does not know yet."""

import asyncio
from typing import Any

import pytest
from cluster_scene import TOPIC, Scene, play
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey

E = ErrorCode
LATEST, MAX_TIMESTAMP = -1, -3
SEEDS = pytest.mark.parametrize("seed", range(2))
AWAY = pytest.mark.parametrize("away", ["asleep", "not heard"])


async def _asked(scene: Scene, node_id: int, key: ApiKey, **fields: Any) -> Any:
    wire = scene.client("consumer").wire_to((node_name(node_id), 9092))
    reply = await scene.world.on(scene.env, wire.request(key, **fields))
    return (reply.responses if key is ApiKey.fetch else reply.topics)[0].partitions[0]


async def _fetched(scene: Scene, node_id: int, offset: int) -> ErrorCode:
    """By a client that names no leader epoch: kafka-python and sarama, and whoever has this leader's metadata."""
    image = scene.nodes.image
    assert image is not None
    place = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topic = {"topic_id": image.topics[TOPIC].topic_id, "partitions": [place]}
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    answer = await _asked(scene, node_id, ApiKey.fetch, topics=[topic], **limits)
    code: ErrorCode = answer.error_code
    return code


async def _validated(scene: Scene, node_id: int, leader_epoch: int) -> tuple[ErrorCode, int]:
    """What librdkafka and Java's client ask before they read on from a position of that epoch."""
    place = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": leader_epoch}
    topics = [{"topic": TOPIC, "partitions": [place]}]
    answer = await _asked(scene, node_id, ApiKey.offset_for_leader_epoch, topics=topics)
    return answer.error_code, answer.end_offset


async def _deposed(scene: Scene, away: str) -> tuple[int, int]:
    """Who led, and where its successor's log ends, of which it has not heard."""
    old, others = scene.leader, scene.followers
    if away == "asleep":
        scene.world.pause(node_name(old))
    for other in others if away != "asleep" else ():
        scene.world.net.cut(node_name(old), node_name(other), one_way=True)
    await scene.until("another leads", lambda: scene.leader != old)
    await scene.until_acknowledged(20)
    asked = {"partition_index": 0, "timestamp": LATEST}
    topics = [{"name": TOPIC, "partitions": [asked]}]
    answer = await _asked(scene, scene.leader, ApiKey.list_offsets, topics=topics)
    assert answer.error_code is E.none
    return old, answer.offset


@SEEDS
@AWAY
def test_a_leader_that_was_deposed_calls_nothing_out_of_range(seed: int, away: str) -> None:
    async def scenario(scene: Scene) -> None:
        old, end = await _deposed(scene, away)
        asked = asyncio.ensure_future(_fetched(scene, old, end))
        await asyncio.sleep(0.1)
        scene.world.resume(node_name(old))
        assert await asked is E.not_leader_or_follower
        scene.world.heal()
        await scene.nodes.until_whole()
        assert await _fetched(scene, scene.leader, end) is E.none
        assert await _fetched(scene, scene.leader, end + 1_000_000) is E.offset_out_of_range

    play(seed, scenario)


@SEEDS
@AWAY
def test_a_leader_that_was_deposed_calls_no_leader_epoch_unknown(seed: int, away: str) -> None:
    async def scenario(scene: Scene) -> None:
        old, end = await _deposed(scene, away)
        image = scene.nodes.image
        assert image is not None
        epoch = image.topics[TOPIC].partitions[0].leader_epoch
        asked = asyncio.ensure_future(_validated(scene, old, epoch))
        await asyncio.sleep(0.1)
        scene.world.resume(node_name(old))
        assert await asked == (E.not_leader_or_follower, -1)
        scene.world.heal()
        await scene.nodes.until_whole()
        error, now = await _validated(scene, scene.leader, epoch)
        assert (error, now >= end) == (E.none, True)
        assert await _validated(scene, scene.leader, 1_000) == (E.none, -1)

    play(seed, scenario)


async def _at(scene: Scene, node_id: int, timestamp: int) -> tuple[ErrorCode, int, int]:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    answer = await _asked(scene, node_id, ApiKey.list_offsets, topics=topics)
    return answer.error_code, answer.offset, answer.timestamp


async def _found(scene: Scene, timestamp: int) -> int:
    """Its time. There is none of the latest time while that one is not committed, as with Kafka."""
    async with asyncio.timeout(10):
        while True:
            error, offset, when = await _at(scene, scene.leader, timestamp)
            assert error is E.none
            if offset >= 0:
                return when
            await asyncio.sleep(0.01)


@SEEDS
@AWAY
@pytest.mark.parametrize("wanted", ["a time", "the latest time"])
def test_a_leader_that_was_deposed_does_not_say_which_records_of_a_time_are_not_there(
    seed: int, away: str, wanted: str
) -> None:
    """Whoever is told that there is none goes to the end, and leaves out what the next leader has of it."""

    async def scenario(scene: Scene) -> None:
        old, _ = await _deposed(scene, away)
        when = await _found(scene, MAX_TIMESTAMP)
        timestamp = when if wanted == "a time" else MAX_TIMESTAMP
        asked = asyncio.ensure_future(_at(scene, old, timestamp))
        await asyncio.sleep(0.1)
        scene.world.resume(node_name(old))
        assert (await asked)[0] in (E.not_leader_or_follower, E.offset_not_available)
        scene.world.heal()
        await scene.nodes.until_whole()
        await _found(scene, timestamp)

    play(seed, scenario)
