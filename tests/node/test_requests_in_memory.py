"""What a request leaves in a node's memory."""

import gc

from fencepost.cluster.base.errors import ErrorCode
from fencepost.node.server.dispatch import Call
from sim_cluster import Cluster


def test_a_write_that_waited_for_other_nodes_is_forgotten_once_it_is_answered() -> None:
    """In a cycle its records would stay until Python's collector comes, which was half of a node's memory under load."""
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.leaders()[0]
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                assert await cluster.produce(leader) is ErrorCode.none
            left = [each for each in gc.get_objects() if type(each) is Call]
            assert left == []
        finally:
            gc.enable()

    cluster.play(scenario)
