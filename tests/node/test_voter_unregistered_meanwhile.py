"""A node is taken off the list while it is waited for to be made a voter (node/voters.py: _check_registered)."""

import asyncio

from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster
from test_voter_changes import add

E = ErrorCode


def test_who_is_taken_off_the_list_while_it_is_waited_for_is_not_made_a_voter() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        leader = cluster.nodes.controller()
        assert leader is not None
        quorum, image = cluster.nodes.broker(leader).quorum, cluster.nodes.broker(leader).image
        cluster.world.pause(node_name(4))
        await cluster.until(lambda: image.brokers[BrokerId(4)].fenced)
        adding = asyncio.ensure_future(add(cluster, leader, 4))
        await asyncio.sleep(0.5)
        assert not adding.done(), "it is waited for until it holds the log"
        reply = await cluster.ask(leader, ApiKey.unregister_broker, broker_id=4)
        assert reply.error_code is E.none
        # It is of an older build, and is refused when it comes back; or its controller is slow.
        session = cluster.nodes.broker(4).session
        before = session._register

        async def later() -> None:
            await asyncio.sleep(2)
            await before()

        session._register = later
        cluster.world.resume(node_name(4))
        was_unknown = False

        def is_voter() -> bool:
            nonlocal was_unknown
            if 4 in quorum.voters:
                was_unknown = was_unknown or BrokerId(4) not in image.brokers
                return True
            return adding.done()

        await cluster.until(is_voter)
        assert not was_unknown, "it votes, and nobody knows what it can read"
        assert (await adding)[0] is not E.none

    cluster.play(scenario)
