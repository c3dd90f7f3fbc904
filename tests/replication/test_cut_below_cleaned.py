"""An election that lost data cuts a replica below what its compaction has been at: it lacks values that the new leader has."""

from asyncio import sleep

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import Record, build_batch
from replica_cluster import Cluster, play, values_of

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def test_what_a_cut_record_had_superseded_is_copied_again() -> None:
    """1. k=v1 is everywhere, and node 3 away   2. k=v2 is on the two others, and v1 compacted away there   3. they die, and node 3
    leads, with v1   4. node 2 is back, without v2 and without v1, and may lead."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(leaders=[1], cleanup_policy="compact", min_cleanable_dirty_ratio="0")

        async def write(by: int, key: bytes, value: bytes) -> None:
            now_ms = cluster[by].env.clock.now_ms()
            await cluster[by].write(bytes(build_batch([Record(0, now_ms, key, value)])))

        await write(1, b"k", b"v1")
        await write(1, b"x", b"x")
        await sleep(1)
        cluster.kill(3)
        cluster.change(isr=(ONE, TWO))
        await write(1, b"k", b"v2")
        await sleep(0.2)
        for each in (1, 2):
            cluster[each].do(cluster[each].partition().log.roll, cluster[each].env.clock.now_ms())
        await write(1, b"y", b"y")
        await sleep(30)
        assert values_of(cluster[2].partition()) == [b"x", b"v2", b"y"]
        cluster.kill(1)
        cluster.kill(2)
        cluster.elect(3, isr=(THREE,))
        await cluster.restart(3)
        await sleep(1)
        await write(3, b"z", b"z")
        await cluster.restart(2)
        await cluster.until(lambda: 2 in cluster.state().isr)
        await sleep(1)
        assert values_of(cluster[2].partition()) == [b"v1", b"x", b"z"]

    play(scene)
