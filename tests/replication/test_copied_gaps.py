"""Pieces of a compacted log that end before a gap."""

from asyncio import sleep

from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster, log_bytes, play
from replica_helpers import batch

B = BrokerId


def test_a_new_replica_copies_a_compacted_log_without_a_stop() -> None:
    async def scene(cluster: Cluster) -> None:
        now = cluster[1].env.clock.now_ms
        cluster.create(
            replicas=(1, 2),
            min_insync_replicas="1",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            delete_retention_ms="0",
            segment_bytes="4000000",
        )
        for n in range(400):
            await cluster[1].write(
                batch("x" * 9000, key=b"k%d" % n if n % 2 == 0 else b"same", timestamp=now())
            )
        log = cluster[1].partition().log
        cluster[1].do(log.roll, now())
        await cluster[1].write(batch("end", key=b"end", timestamp=now()))
        await sleep(1)
        node = cluster[1]
        await cluster.world.on(node.env, node.manager.rounds.compact())
        began = cluster.world.loop.time()
        cluster.change(replicas=(B(1), B(2), B(3)))
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert log_bytes(cluster[3].partition()) == log_bytes(cluster[1].partition())
        assert cluster.world.loop.time() - began < 0.2

    play(scene)
