"""Two histories of one partition, which part where node 1 was left behind."""

from asyncio import sleep
from collections.abc import Iterable

from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster


async def leave_behind(cluster: Cluster, first: bytes, alone: Iterable[bytes]) -> None:
    """Node 1 has all nodes copy `first`, is cut off, appends what it has `alone`, of which nobody is told, and dies. Node 2 leads
    from then on, with node 3."""
    cluster.create(min_insync_replicas="1")
    await cluster[1].write(first)
    await sleep(1.0)
    cluster.world.net.cut("node-1", "node-2")
    cluster.world.net.cut("node-1", "node-3")
    cluster.deaf.add(1)
    for each in alone:
        cluster[1].append(each)
    await sleep(1.0)
    cluster.kill(1)
    cluster.deaf.discard(1)
    cluster.elect(2, isr=(BrokerId(2), BrokerId(3)))
    cluster.world.net.heal_all()
