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


async def retention_takes_all(cluster: Cluster, *, up_to: int) -> None:
    """Of nodes 2 and 3."""
    cluster.configure(retention_ms="1000")
    await sleep(5.0)
    for each in (2, 3):
        node = cluster[each]
        await cluster.world.on(node.env, node.manager.rounds.retain())
    await sleep(2.0)
    leader = cluster[2].partition()
    assert leader.log_start_offset == leader.log_end_offset == up_to


async def comes_back_and_leads(cluster: Cluster) -> None:
    """Node 1, once it is in sync."""
    await cluster.restart(1)
    await cluster.until(lambda: 1 in cluster.state().isr)
    cluster.elect(1)
    await sleep(1.0)
