"""Metadata names a node that died for a while, as Kafka does for a session: librdkafka stands still otherwise."""

import asyncio
from typing import Any

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.recent_brokers import NAMED_S
from sim_cluster import CLIENT, Cluster


async def named(
    cluster: Cluster, node_id: int, name: str = "wrapper", version: str = "2.16.1-rdkafka-2.16.0"
) -> list[int]:
    """To a client that says this of itself."""
    client = cluster.world.node(CLIENT)

    async def work() -> Any:
        wire = WireClient(client, node_name(node_id), CLIENT_PORT, timeout_s=60.0)
        said = {"client_software_name": name, "client_software_version": version}
        try:
            await wire.request(ApiKey.api_versions, **said)
            return await wire.request(ApiKey.metadata, topics=[])
        finally:
            await wire.close()

    reply = await cluster.world.on(client, work())
    return sorted(each.node_id for each in reply.brokers)


def test_a_node_that_died_is_named_for_a_while() -> None:
    cluster = Cluster(seed="recent")

    async def scenario() -> None:
        await cluster.create("t", partitions=3)
        cluster.world.kill(node_name(3))
        await cluster.until(lambda: 3 not in cluster.leaders())
        began = cluster.now
        for asked in (1, 2):
            assert await named(cluster, asked) == [1, 2, 3]
            assert await named(cluster, asked, "librdkafka", "2.16.0") == [1, 2, 3]
            # Others ask every node that is named, and fail on it.
            assert await named(cluster, asked, "kgo", "1.22.2") == [1, 2]
        # Only Metadata's list of nodes: no partition is led by it, and nobody is sent to it.
        reply = await cluster.ask(1, ApiKey.metadata, topics=[{"name": "t"}])
        parts = reply.topics[0].partitions
        assert all(each.leader_id in (1, 2) for each in parts)
        assert all(list(each.offline_replicas) == [3] for each in parts)
        described = await cluster.ask(1, ApiKey.describe_cluster)
        assert sorted(each.broker_id for each in described.brokers) == [1, 2]
        while cluster.now < began + NAMED_S + 1:
            await asyncio.sleep(1.0)
        assert await named(cluster, 1) == [1, 2]

    cluster.play(scenario)


def test_a_node_that_comes_back_is_named_again_for_as_long_as_it_serves() -> None:
    cluster = Cluster(seed="recent")

    async def scenario() -> None:
        cluster.world.kill(node_name(3))
        await cluster.until(lambda: 3 not in alive(cluster))
        cluster.nodes.start(3)
        await cluster.until(lambda: 3 in alive(cluster))
        began = cluster.now
        while cluster.now < began + NAMED_S + 1:
            await asyncio.sleep(1.0)
        assert await named(cluster, 1) == [1, 2, 3]
        # Node 3 never saw how it died.
        assert await named(cluster, 3) == [1, 2, 3]

    cluster.play(scenario)


def test_a_node_that_left_for_good_is_not_named() -> None:
    cluster = Cluster(4, seed="recent")

    async def scenario() -> None:
        cluster.world.kill(node_name(4))
        await cluster.until(lambda: 4 not in alive(cluster))
        assert 4 in await named(cluster, 1)
        await cluster.ask(1, ApiKey.unregister_broker, broker_id=4)
        await cluster.until(lambda: 4 not in cluster.nodes.image.brokers)
        assert await named(cluster, 1) == [1, 2, 3]

    cluster.play(scenario)


def alive(cluster: Cluster) -> list[int]:
    image = cluster.nodes.image
    assert image is not None
    return [each.broker_id for each in image.alive_brokers()]
