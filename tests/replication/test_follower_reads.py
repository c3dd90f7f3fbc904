"""Consumers that read from a follower in their own rack (KIP-392)."""

from asyncio import sleep

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.partition import Read, Refusal
from fencepost.replication.waits import FetchWait
from replica_cluster import Cluster, play
from replica_helpers import batch


def test_only_who_asks_for_it_is_served_by_a_follower() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        await sleep(0.1)
        follower = cluster[2].partition()
        refused = follower.read(0, 1_000, isolation=0, min_one=True)
        assert refused == Refusal(ErrorCode.not_leader_or_follower)
        found = follower.read(0, 1_000, isolation=0, min_one=True, leader_only=False)
        assert isinstance(found, Read) and found.high_watermark == 1

    play(scene)


def test_a_follower_shows_nothing_that_it_does_not_know_to_be_committed() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        cluster.world.net.cut("node-1", "node-3")
        cluster[1].append(batch("a"))
        await sleep(0.5)
        follower = cluster[2].partition()
        assert follower.log_end_offset == 1
        found = follower.read(0, 1_000, isolation=0, min_one=True, leader_only=False)
        assert isinstance(found, Read) and found.size == 0

    play(scene)


def test_a_fetch_that_is_parked_on_a_follower_hears_of_commits_and_of_leaders() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        await sleep(0.1)
        follower = cluster[2].partition()
        with FetchWait(1) as wait:
            wait.watch(follower, 1, 1_000, 0, 0)
            assert not await wait.until(0.5)
            await cluster[1].write(batch("b"))
            assert await wait.until(0.1)
        with FetchWait(1) as wait:
            wait.watch(follower, 2, 1_000, 0, 0)
            cluster.elect(3)
            assert await wait.until(0.1)

    play(scene)


def test_the_leader_knows_who_has_what() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        await sleep(0.1)
        assert cluster[1].partition().replicas_to_read(1) == [1, 2, 3]
        cluster.world.net.cut("node-1", "node-3")
        cluster[1].append(batch("b"))
        await sleep(0.1)
        assert cluster[1].partition().replicas_to_read(2) == [1, 2]
        cluster.change(isr=(BrokerId(1),))
        assert cluster[1].partition().replicas_to_read(0) == [1]

    play(scene)


def test_a_follower_whose_disk_refused_a_write_sends_its_readers_back() -> None:
    """It hears of no commit any more: who reads there would wait until the lease of that replica is over."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        await sleep(0.1)
        follower = cluster[2].partition()
        cluster.world.disk("node-2").faults.fail("append", path="*.log")
        with FetchWait(1) as wait:
            wait.watch(follower, 1, 1_000, 0, 0)
            cluster[1].append(batch("b"))
            assert await wait.until(0.5)
        refused = follower.read(1, 1_000, isolation=0, min_one=True, leader_only=False)
        assert isinstance(refused, Refusal) and refused.error is ErrorCode.kafka_storage_error

    play(scene)
