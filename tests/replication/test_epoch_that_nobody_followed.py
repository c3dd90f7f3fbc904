"""Of a compacted log that has lost all of epoch 0, a former leader asks about an epoch that nobody else has heard of."""

from asyncio import sleep

from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch

B = BrokerId


def test_what_it_alone_has_goes_and_what_was_acknowledged_once_is_there_once() -> None:
    """1. node 1 leads, and is cut off with a tail of epoch 0   2. node 2 leads epoch 1, which no other follows, and dies   3. node 1
    leads epoch 2: its tail is committed, superseded and compacted away   4. node 3 copies that log anew, and leads: it knows of
    epoch 2 alone   5. node 2 is back: what stands below epoch 2 was written in epoch 0, and not by node 2."""

    async def scene(cluster: Cluster) -> None:
        policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
        cluster.create(**policy, min_insync_replicas="2")
        now = cluster[1].env.clock.now_ms

        def put(key: str, value: str) -> bytes:
            return batch(value, key=key.encode(), timestamp=now())

        def paid() -> bytes:
            return batch("paid", key=b"paid", timestamp=now(), pid=7, sequence=0)

        for number in range(2):
            await cluster[1].write(put("x", str(number)))
        await sleep(1.0)
        for pair in ((1, 2), (1, 3), (2, 3)):
            cluster.world.net.cut(*(f"node-{each}" for each in pair))
        for number in range(2, 7):
            cluster[1].append(put("x", str(number)))
        cluster.elect(2)
        await sleep(0.2)
        cluster[2].append(put("n", "never"))
        cluster[2].produce(paid())
        await sleep(1.0)
        cluster.kill(2)
        cluster.elect(1, isr=(B(1), B(3)))
        cluster.world.net.heal_all()
        await cluster.until(lambda: cluster[1].partition().high_watermark >= 7)
        for number in range(7, 10):
            await cluster[1].write(put("x", str(number)))
        cluster[1].do(cluster[1].partition().log.roll, now())
        await cluster[1].write(paid())
        await sleep(60)
        cluster.change(replicas=(B(1), B(2)), isr=(B(1),))
        await sleep(1)
        cluster.change(replicas=(B(1), B(2), B(3)))
        await cluster.until(lambda: 3 in cluster.state().isr)
        copied = cluster[3].partition().log
        assert (copied.log_start_offset, copied.epochs.epochs[0]) == (0, 2)
        cluster.elect(3)
        await sleep(1.0)
        await cluster.restart(2)
        await cluster.until(lambda: 2 in cluster.state().isr)
        values = values_of(cluster[2].partition())
        assert (values.count(b"never"), values.count(b"paid")) == (0, 1)

    play(scene)
