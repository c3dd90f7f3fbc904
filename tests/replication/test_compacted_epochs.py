"""Where a leader epoch begins outlives compaction, also in a log that was copied afterwards."""

from asyncio import sleep

from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch

B = BrokerId


def test_a_compacted_log_that_was_copied_does_not_hide_what_an_old_leader_alone_has() -> None:
    """Epoch 1's first batches were compacted away before node 3 copied the log: to it that epoch begins later than it did."""

    async def scene(cluster: Cluster) -> None:
        now = cluster[1].env.clock.now_ms
        cluster.create(
            cleanup_policy="compact", min_cleanable_dirty_ratio="0", min_insync_replicas="1"
        )

        def put(key: str, value: str):
            return batch(value, key=key.encode(), timestamp=now())

        await cluster[1].write(put("k", "committed"))  # 0
        await cluster[1].write(put("x", "0"))  # 1
        await sleep(1.0)
        cluster.kill(3)
        cluster.change(isr=(B(1), B(2)))
        await sleep(0.5)
        # node 1 is cut off, and appends what nobody else has.
        cluster.world.net.cut("node-1", "node-2")
        cluster.deaf.add(1)
        cluster[1].append(put("k", "never committed"))  # 2
        await sleep(1.0)
        cluster.kill(1)
        cluster.deaf.discard(1)
        cluster.elect(2, isr=(B(2),))
        cluster.world.net.heal_all()
        for n in range(6):  # 2..7: all but the last are superseded
            await cluster[2].write(put("x", str(n)))
        leader = cluster[2].partition()
        cluster[2].do(leader.log.roll, now())
        await cluster[2].write(put("y", "1"))  # 8
        await sleep(60)
        # node 3 is back and copies what is left
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr)
        cluster.elect(3)
        await sleep(1.0)
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        await sleep(60)
        first = cluster[1].partition()
        assert b"never committed" not in values_of(first)

    play(scene)


def test_what_was_acknowledged_outlives_a_former_leader_that_comes_back_to_a_copied_log() -> None:
    """The same with two in sync: the value was compacted away there, superseded by one that nobody was told of."""

    async def scene(cluster: Cluster) -> None:
        now = cluster[1].env.clock.now_ms
        cluster.create(
            cleanup_policy="compact", min_cleanable_dirty_ratio="0", min_insync_replicas="2"
        )

        def put(key: str, value: str):
            return batch(value, key=key.encode(), timestamp=now())

        await cluster[1].write(put("k", "acknowledged"))  # 0
        await cluster[1].write(put("x", "0"))  # 1
        await sleep(1.0)
        cluster.world.net.cut("node-1", "node-2")
        cluster.world.net.cut("node-1", "node-3")
        cluster.deaf.add(1)
        cluster[1].append(put("k", "never committed"))  # 2
        await sleep(1.0)
        cluster.kill(1)
        cluster.deaf.discard(1)
        cluster.elect(2, isr=(B(2), B(3)))
        cluster.world.net.heal_all()
        for n in range(6):  # 2..7
            await cluster[2].write(put("x", str(n)))
        leader = cluster[2].partition()
        cluster[2].do(leader.log.roll, now())
        await cluster[2].write(put("y", "1"))  # 8
        await sleep(60)
        # node 3 is taken out of the partition and in again (as the log's own advice says): it copies what is left
        cluster.change(replicas=(B(1), B(2)), isr=(B(2),))
        await sleep(1)
        cluster.change(replicas=(B(1), B(2), B(3)))
        await cluster.until(lambda: 3 in cluster.state().isr)
        cluster.elect(3)
        await sleep(1.0)
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        cluster.elect(1)
        await sleep(1.0)
        first = cluster[1].partition()
        await cluster[1].write(put("y", "2"))
        cluster[1].do(first.log.roll, now())
        await cluster[1].write(put("z", "2"))
        await sleep(60)
        for n in (1, 2, 3):
            print(n, values_of(cluster[n].partition()))
        assert b"acknowledged" in values_of(first)

    play(scene)
