"""From node to node: what compaction forgets while this node has not heard yet who has a replica, and who is in sync."""

from asyncio import sleep

import pytest
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import Record, build_batch
from replica_cluster import Cluster, play, values_of

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ROUND_S = 20  # log.cleaner.backoff.ms is 15 s


async def write(cluster: Cluster, key: bytes, value: bytes | None) -> None:
    """By node 1, which never has anything to compact; node 2 has, at once."""
    leader, follower = cluster[1], cluster[2]
    now_ms = leader.env.clock.now_ms()
    await leader.write(bytes(build_batch([Record(0, now_ms, key, value)])))
    await sleep(0.1)  # until the follower knows that it is committed
    follower.do(follower.partition().log.roll, now_ms)


async def rounds_of_two(cluster: Cluster) -> None:
    """The value goes and its tombstone gets a horizon; that is over in the next one."""
    for key in (b"a", b"b", b"c"):
        await write(cluster, key, key)
        await sleep(ROUND_S)


def create(cluster: Cluster, *replicas: int) -> None:
    cluster.create(
        replicas=replicas,
        leaders=[1],
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0",
        delete_retention_ms="0",
    )


def test_a_deleted_key_does_not_come_back_with_a_replica_whose_absence_was_heard_of_late() -> None:
    """1. Node 3 goes away, and leaves the in-sync set; node 2 does not hear of it. 2. A key is deleted, and node 2 drops the
    tombstone: it has it that everybody is in sync. 3. Node 2 leads, and node 3 comes back with the value."""

    async def scene(cluster: Cluster) -> None:
        create(cluster, 1, 2, 3)
        await write(cluster, b"k", b"v")
        cluster.deaf.add(2)
        cluster.kill(3)
        cluster.change(isr=(ONE, TWO))
        await write(cluster, b"k", None)
        await rounds_of_two(cluster)
        assert values_of(cluster[2].partition()) == [b"", b"a", b"b", b"c"]
        cluster.kill(1)
        cluster.deaf.clear()
        cluster.spread(2)
        cluster.elect(2, isr=(TWO,))
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert values_of(cluster[3].partition()) == [b"v", b"", b"a", b"b", b"c"]

    play(scene)


@pytest.mark.parametrize("is_deaf", [True, False])
def test_a_tombstone_stays_until_a_follower_is_sure_that_it_knows_of_every_replica(
    *, is_deaf: bool
) -> None:
    """One that was added has copied the value by then, maybe, and would go on behind the tombstone."""

    async def scene(cluster: Cluster) -> None:
        create(cluster, 1, 2)
        await write(cluster, b"k", b"v")
        await write(cluster, b"k", None)
        if is_deaf:
            cluster.kill(3)
            cluster.deaf.add(2)
            cluster.change(replicas=(ONE, TWO, THREE), adding=(THREE,))
        await rounds_of_two(cluster)
        tombstone = [b""] if is_deaf else []
        assert values_of(cluster[2].partition()) == [*tombstone, b"a", b"b", b"c"]

    play(scene)
