"""A machine that comes back with an empty disk, in the name of the node that it was."""

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_LEADER, TopicPartition
from fencepost.cluster.metadata.offline import why_offline
from sim_cluster import Cluster


@pytest.mark.slow
def test_the_last_of_an_isr_does_not_lead_with_an_empty_disk() -> None:
    """Power goes for all while the leader's disk is changed: the others would drop what they were told is committed."""
    cluster = Cluster(seed="replaced")

    async def scenario() -> None:
        await cluster.create("t")
        await cluster.until(lambda: len(cluster.partition().isr) == 3)
        leader = cluster.leaders()[0]
        others = [each for each in cluster.nodes.ids if each != leader]
        assert await cluster.produce(leader) is ErrorCode.none
        for node_id in cluster.nodes.ids:
            cluster.world.crash(node_name(node_id))
        disk = cluster.world.restart(node_name(leader)).disk
        kept = "/data/metadata"  # the voter's journal is another matter
        for each in disk.list("/data"):
            path = f"/data/{each}"
            if path != kept:
                (
                    disk.remove_tree
                    if cluster.world.disk(node_name(leader)).is_folder(path)
                    else disk.remove
                )(path)
        for node_id in others:
            cluster.nodes.start(node_id)
        await cluster.until(lambda: cluster.partition().isr == (leader,))
        cluster.nodes.start(leader)
        await cluster.until(lambda: len(cluster.nodes.ready()) == 3)
        now = cluster.partition()
        assert (now.leader, now.isr, now.offline) == (NO_LEADER, (leader,), (leader,))
        image = cluster.nodes.image
        assert image is not None
        assert "another disk" in str(why_offline(image, TopicPartition("t", 0)))

    cluster.play(scenario)
