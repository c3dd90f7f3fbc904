"""A machine that comes back with an empty disk, in the name of the node that it was."""

from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, BrokerId, TopicPartition
from fencepost.cluster.metadata.image import NO_DISK, ClusterImage, Endpoint
from fencepost.cluster.metadata.offline import why_offline
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.cli.lost_disks import name_lost_disks
from sim_cluster import Cluster


def play(
    flush_policy: str, afterwards: Callable[[Cluster, int, list[int]], Awaitable[None]]
) -> None:
    """Power goes for all while the leader's disk is changed; the others come back first."""
    cluster = Cluster(seed="replaced", config=(f"flush.policy={flush_policy}",))

    async def scenario() -> None:
        await cluster.create("t")
        await cluster.until(lambda: len(cluster.partition().isr) == 3)
        leader = cluster.leaders()[0]
        others = [each for each in cluster.nodes.ids if each != leader]
        assert await cluster.produce(leader) is ErrorCode.none
        for node_id in cluster.nodes.ids:
            cluster.world.crash(node_name(node_id))
        _empty_the_disk(cluster, leader)
        for node_id in others:
            cluster.nodes.start(node_id)
        await cluster.until(lambda: set(others) <= set(cluster.nodes.ready()))
        await afterwards(cluster, leader, others)

    cluster.play(scenario)


def _empty_the_disk(cluster: Cluster, node_id: int) -> None:
    disk = cluster.world.restart(node_name(node_id)).disk
    files = cluster.world.disk(node_name(node_id))
    for name in disk.list("/data"):
        if name != "metadata":  # the voter's journal is another matter
            remove = disk.remove_tree if files.is_folder(f"/data/{name}") else disk.remove
            remove(f"/data/{name}")


async def tells_from_afar(cluster: Cluster, image: ClusterImage, leader: int) -> None:
    """The commands see what clients are told: Metadata has a replica that is offline, and not for which disk."""
    answers = {
        each: await cluster.ask(each, ApiKey.describe_log_dirs, topics=None)
        for each in cluster.nodes.ids
    }

    def ask_node(endpoint: Endpoint, key: ApiKey, **_: Any) -> Any:
        assert key is ApiKey.describe_log_dirs
        (asked,) = (each for each in cluster.nodes.ids if node_name(each) == endpoint.host)
        return answers[asked]

    afar = copy(image)
    afar.brokers = {
        node_id: replace(each, disk=NO_DISK, waits_for_disk=NO_DISK)
        for node_id, each in image.brokers.items()
    }
    place, before = TopicPartition("t", 0), image.brokers[BrokerId(leader)].waits_for_disk
    assert "its log of this partition failed" in str(why_offline(afar, place))
    name_lost_disks(SimpleNamespace(ask_node=ask_node), afar)  # type: ignore[arg-type]
    assert f"another disk than the one that has it (directory.id={before})" in str(
        why_offline(afar, place)
    )
    assert why_offline(afar, place) == why_offline(image, place)


@pytest.mark.slow
def test_the_last_of_an_isr_does_not_lead_with_an_empty_disk() -> None:
    """Under `os` nobody knows what the others lost with their power: they would drop what they were told is committed."""

    async def afterwards(cluster: Cluster, leader: int, _others: list[int]) -> None:
        await cluster.until(lambda: cluster.partition().isr == (leader,))
        cluster.nodes.start(leader)
        await cluster.until(lambda: len(cluster.nodes.ready()) == 3)
        now = cluster.partition()
        assert (now.leader, now.isr, now.offline) == (NO_LEADER, (leader,), (leader,))
        image = cluster.nodes.image
        assert image is not None
        assert "another disk" in str(why_offline(image, TopicPartition("t", 0)))
        await tells_from_afar(cluster, image, leader)

    play("os", afterwards)


@pytest.mark.slow
def test_those_who_had_synced_everything_go_on_and_fill_the_empty_disk() -> None:
    async def afterwards(cluster: Cluster, leader: int, others: list[int]) -> None:
        await cluster.until(lambda: sorted(cluster.partition().isr) == others)
        assert await cluster.produce(cluster.partition().leader) is ErrorCode.none
        cluster.nodes.start(leader)
        await cluster.until(lambda: len(cluster.partition().isr) == 3)
        log = cluster.nodes.broker(leader).replicas.partitions[TopicPartition("t", 0)].log
        assert (log.log_start_offset, log.log_end_offset) == (0, 2)

    play("ack", afterwards)
