"""Bytes a second: as a bucket, and through three nodes."""

from asyncio import sleep

import pytest
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.throttle_machine import NO_LIMIT, ByteBucket, is_throttled
from hypothesis import given
from hypothesis import strategies as st
from replica_cluster import Cluster, play
from replica_helpers import batch

BOTH = (BrokerId(1), BrokerId(2))


@pytest.mark.parametrize(
    ("replicas", "partition", "broker", "answer"),
    [
        ((), 0, 1, False),
        (("*",), 7, 9, True),
        (("0:1", "3:2"), 3, 2, True),
        (("0:1", "3:2"), 3, 1, False),
    ],
)
def test_who_is_throttled_is_said_as_in_kafka(
    replicas: tuple[str, ...], partition: int, broker: int, answer: bool
) -> None:
    assert is_throttled(replicas, partition, broker) is answer


@given(st.integers(0, 10_000), st.lists(st.tuples(st.floats(0, 3), st.integers(1, 5_000))))
def test_no_more_goes_through_than_the_rate_says(rate: int, steps: list[tuple[float, int]]) -> None:
    bucket = ByteBucket(rate)
    bucket.available(0.0)
    now, gone = 0.0, 0
    for pause, size in steps:
        now += pause
        if bucket.available(now) > 0:
            bucket.take(size)
            gone += size
            assert gone <= rate * now + rate + size + 1


def test_without_a_limit_everything_goes() -> None:
    bucket = ByteBucket()
    bucket.take(10**15)
    assert bucket.available(0.0) == NO_LIMIT


async def fall_behind(cluster: Cluster, *, throttled: str) -> None:
    """Node 3 lacks a megabyte of a topic that one side throttles."""
    cluster.create(min_insync_replicas="2", flush_policy="os")
    cluster.kill(3)
    cluster.change(isr=BOTH)
    cluster.configure(**{f"{throttled}_replication_throttled_replicas": "*"})
    for _ in range(100):
        await cluster[1].write(batch(b"x" * 10_000))


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_one_that_catches_up_is_held_to_the_rate_until_it_is_in_sync(side: str) -> None:
    async def scene(cluster: Cluster) -> None:
        await fall_behind(cluster, throttled=side)
        started = cluster.world.loop.time()
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr, seconds=60)
        took = cluster.world.loop.time() - started
        assert (
            8 < took < 12
        )  # a megabyte at 100,000 bytes a second, of which one second's worth at once
        started = cluster.world.loop.time()
        for _ in range(20):
            await cluster[1].write(batch(b"x" * 10_000))
        assert cluster.world.loop.time() - started < 1

    play(scene, **{f"{side}_replication_throttled_rate": "100000"})


def test_others_are_not_throttled_with_it() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=2, leaders=[1, 1], min_insync_replicas="2", flush_policy="os")
        await cluster[1].write(batch("a"))
        cluster.kill(3)
        for index in (0, 1):
            cluster.change(index=index, isr=BOTH)
        cluster.configure(leader_replication_throttled_replicas="0:1")
        for _ in range(100):
            await cluster[1].write(batch(b"x" * 10_000))
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state(index=1).isr, seconds=2)
        assert 3 not in cluster.state(index=0).isr

    play(scene, leader_replication_throttled_rate="10000")


def test_a_limit_that_is_lifted_at_once_holds_nobody_back() -> None:
    """A follower that asked meanwhile was granted nothing, and a quarter of a second later nobody remembered that."""

    async def scene(cluster: Cluster) -> None:
        await fall_behind(cluster, throttled="follower")
        await cluster.restart(3)
        followers = cluster[3].replication.following

        def has_asked() -> bool:
            copies = [copy for each in followers._streams.values() for copy in each.copies.values()]
            return any(copy.granted == 0 for copy in copies)

        await cluster.until(has_asked, seconds=0.2)
        cluster[3].manager.follower_throttled_rate = NO_LIMIT
        await cluster.until(lambda: 3 in cluster.state().isr, seconds=2)

    play(scene, follower_replication_throttled_rate="1000")


def test_one_that_is_followed_no_more_while_it_waits_for_the_limit_takes_nothing_of_it() -> None:
    """What it was sent would be for nobody, and out of the rate of the one that asks in its place."""

    async def scene(cluster: Cluster) -> None:
        await fall_behind(cluster, throttled="leader")
        await cluster.restart(3)
        streams = cluster[1].replication.leading
        await cluster.until(lambda: bool(streams.throttle._waiting), seconds=2)
        (feed,) = streams.throttle._waiting
        sent = feed.sent_bytes
        streams._streams[BrokerId(3)]._drop(feed)
        await sleep(5)
        assert feed.sent_bytes == sent

    play(scene, leader_replication_throttled_rate="10000")
