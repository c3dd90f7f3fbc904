"""A node that stops while clients work with it."""

from typing import Any

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.cluster.base.errors import ConnectionLost, ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.node.farewell import QUIET_S, WITHIN_S
from sim_cluster import CLIENT, Cluster


def test_a_client_in_use_is_refused_by_name_before_its_connection_ends() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.nodes.partition("t", 0).leader
        answers: list[ErrorCode] = []
        client = cluster.world.node(CLIENT)

        async def produce_all_the_time() -> None:
            wire = WireClient(client, node_name(leader), CLIENT_PORT, timeout_s=60.0)
            try:
                while True:
                    answers.append(await produce(cluster, wire))
                    await client.clock.sleep(0.05)
            except ConnectionLost:
                return

        cluster.world.start(client, lambda _: produce_all_the_time())
        await cluster.until(lambda: ErrorCode.none in answers)
        began = cluster.now
        await cluster.nodes.stop(leader)
        assert ErrorCode.not_leader_or_follower in answers
        assert cluster.now - began < WITHIN_S + 1.0

    cluster.play(scenario)


def test_a_client_that_asks_nothing_does_not_hold_a_stop_up() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.nodes.partition("t", 0).leader
        client = cluster.world.node(CLIENT)
        wire = WireClient(client, node_name(leader), CLIENT_PORT, timeout_s=60.0)
        await cluster.world.on(client, wire.request(ApiKey.api_versions))
        await client_sleeps(cluster, client, QUIET_S)
        began = cluster.now
        await cluster.nodes.stop(leader)
        assert cluster.now - began < QUIET_S + 0.5

    cluster.play(scenario)


async def client_sleeps(cluster: Cluster, client: Any, seconds: float) -> None:
    await cluster.world.on(client, client.clock.sleep(seconds))


async def produce(cluster: Cluster, wire: WireClient) -> ErrorCode:
    data = [{"index": 0, "records": build_batch([Record(0, 1_000, None, b"x", ())])}]
    reply = await wire.request(
        ApiKey.produce,
        acks=-1,
        timeout=10_000,
        topic_data=[{"topic_id": cluster.topic_id, "partition_data": data}],
    )
    error: ErrorCode = reply.responses[0].partition_responses[0].error_code
    return error
