"""A cluster whose voters sync in more than a second: slow, and not out of service."""

import asyncio

from fencepost.chaos.sim.cluster_nodes import node_name
from sim_cluster import Cluster

SYNC_S = 1.2


def test_a_broker_comes_back_while_most_voters_sync_in_more_than_a_second() -> None:
    """Each try to register was given up after a second, and made the one before it void: 86 broker epochs in 90 s."""
    cluster = Cluster()

    async def scenario() -> None:
        controller = cluster.nodes.controller()
        slow = [each for each in (1, 2, 3) if each != controller]
        assert controller is not None
        brokers = cluster.nodes.broker(controller).image.brokers
        before = brokers[slow[0]].broker_epoch
        cluster.kill(slow[0])
        await cluster.until(lambda: brokers[slow[0]].fenced)
        for each in slow:
            cluster.world.disk(node_name(each)).faults.sync_s = (SYNC_S, SYNC_S)
        cluster.nodes.start(slow[0])
        await asyncio.sleep(20 * SYNC_S)
        back = brokers[slow[0]]
        assert (back.fenced, cluster.nodes.controller()) == (False, controller)
        assert before < back.broker_epoch <= before + 10

    cluster.play(scenario)
