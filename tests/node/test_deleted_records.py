"""DeleteRecords among three nodes: what was answered as deleted does not come back."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster

PLACE = TopicPartition("t", 0)


async def delete(cluster: Cluster, node_id: int, before: int) -> Any:
    wanted = {"name": "t", "partitions": [{"partition_index": 0, "offset": before}]}
    reply = await cluster.ask(node_id, ApiKey.delete_records, topics=[wanted], timeout=5_000)
    return reply.topics[0].partitions[0]


@pytest.mark.parametrize("seed", range(5))
def test_deleted_records_stay_deleted_when_all_lose_their_power_at_once(seed: int) -> None:
    """Followers had the new log start in memory only, for up to a quarter of a second after the answer."""
    cluster = Cluster(seed=seed)

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.partition().leader
        for _ in range(10):
            assert await cluster.produce(leader) is ErrorCode.none
        await asyncio.sleep(1.0)
        answer = await delete(cluster, leader, 7)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 7)
        for node_id in (1, 2, 3):
            cluster.world.crash(node_name(node_id), torn=True)
        # Who registers last is all that is left of the in-sync set, and leads.
        for node_id in sorted((1, 2, 3), key=lambda each: each != leader):
            cluster.nodes.start(node_id)
            await asyncio.sleep(1.0)
        await cluster.nodes.until_whole()
        starts = [
            cluster.nodes.broker(each).replicas.partitions[PLACE].log_start_offset
            for each in (1, 2, 3)
        ]
        assert starts == [7, 7, 7]

    cluster.play(scenario)


def test_a_deletion_is_not_answered_while_a_follower_can_not_write_it_down() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.partition().leader
        follower = next(each for each in (1, 2, 3) if each != leader)
        for _ in range(10):
            assert await cluster.produce(leader) is ErrorCode.none
        await asyncio.sleep(1.0)
        faults = cluster.world.disk(node_name(follower)).faults
        faults.fail("sync", path="/data/partition-offsets", times=1_000_000)
        faults.fail("rename", path="/data/partition-offsets*", times=1_000_000)
        answer = await delete(cluster, leader, 7)
        assert answer.error_code is ErrorCode.request_timed_out
        faults.planned.clear()
        answer = await delete(cluster, leader, 7)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.none, 7)

    cluster.play(scenario)
