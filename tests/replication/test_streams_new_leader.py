"""From node to node: what a deposed leader alone had is dropped, and counts for nothing."""

from asyncio import sleep

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.replication import streams_follower
from fencepost.replication.metrics import Counters
from fencepost.replication.partition import Appended
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch


def test_an_old_leader_drops_what_it_alone_had() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("kept"))
        cluster.world.net.isolate("node-1")
        cluster.deaf.add(1)
        cluster[1].append(batch("lost"))
        cluster.elect(2, isr=(BrokerId(2), BrokerId(3)))
        await cluster[2].write(batch("new"))
        cluster.world.net.heal_all()
        cluster.deaf.clear()
        cluster.spread(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        assert values_of(cluster[1].partition()) == [b"kept", b"new"]
        assert cluster[1].manager.counters.truncations == 1

    play(scene)


def test_a_frame_that_parts_many_logs_cuts_none_of_them_in_its_own_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each reads again who produced what; a leader that comes back may have a thousand to cut."""
    stream = streams_follower.FollowerStream
    on_frame, part = stream._on_frame, stream._part_next
    cuts: list[int] = []  # in each turn

    def reads(self, *frame) -> None:
        before = counters.truncations
        on_frame(self, *frame)
        assert counters.truncations == before

    def parts(self) -> None:
        before = counters.truncations
        part(self)
        cuts.append(counters.truncations - before)

    async def scene(cluster: Cluster) -> None:
        nonlocal counters
        cluster.create(partitions=5, leaders=[1] * 5, min_insync_replicas="2")
        names = [TopicPartition("orders", index) for index in range(5)]
        for name in names:
            await cluster[1].write(batch("kept"), name)
        cluster.world.net.isolate("node-1")
        cluster.deaf.add(1)
        for name in names:
            cluster[1].append(batch("lost"), name)
            cluster.elect(2, index=name.partition, isr=(BrokerId(2), BrokerId(3)))
        counters = cluster[1].manager.counters
        monkeypatch.setattr(stream, "_on_frame", reads)
        monkeypatch.setattr(stream, "_part_next", parts)
        cluster.world.net.heal_all()
        cluster.deaf.clear()
        cluster.spread(1)
        await cluster.until(lambda: all(1 in cluster.state(index=i).isr for i in range(5)))
        assert cuts == [1] * 5

    counters = Counters()
    play(scene)


def test_a_leader_that_wakes_up_deposed_commits_nothing() -> None:
    """SIGSTOP: it goes on as if no time had passed, and hears of its successor later than its clients speak to it."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        old = cluster[1]
        await old.write(batch("kept"))
        cluster.world.pause("node-1")
        await sleep(1.0)
        cluster.elect(2, isr=(BrokerId(2), BrokerId(3)))
        await cluster[2].write(batch("new"))
        cluster.deaf.add(1)
        cluster.world.resume("node-1")
        done = old.produce(batch("zombie"))
        assert isinstance(done, Appended)
        await sleep(5.0)
        assert old.partition().high_watermark == 1
        assert values_of(cluster[2].partition()) == [b"kept", b"new"]
        cluster.deaf.clear()
        cluster.spread(1)
        assert await old.partition().committed(done.last_offset) is ErrorCode.not_leader_or_follower
        await cluster.until(lambda: 1 in cluster.state().isr)
        assert values_of(old.partition()) == [b"kept", b"new"]

    play(scene)
