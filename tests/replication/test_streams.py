"""From node to node: what a leader appends is on its followers, and counts when they have it."""

import errno
from asyncio import sleep

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.replication import streams_leader
from fencepost.replication.partition import Appended, Refusal
from fencepost.replication.streams_leader import WINDOW_BYTES
from replica_cluster import Cluster, log_bytes, play, values_of
from replica_helpers import ORDERS, PAYMENTS, batch


def test_what_the_leader_appends_is_on_every_follower() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        leader = cluster[1]
        for number in range(20):
            assert await leader.write(batch(f"v{number}")) == number
        await sleep(0.1)
        for node in (2, 3):
            follower = cluster[node].partition()
            assert log_bytes(follower) == log_bytes(leader.partition())
            assert follower.high_watermark == 20
            assert follower.log.epochs.epochs == leader.partition().log.epochs.epochs

    play(scene)


def test_nothing_is_committed_while_a_member_of_the_isr_lacks_it() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        cluster.world.net.cut("node-1", "node-3")
        done = cluster[1].append(batch("b"))
        await sleep(1.0)
        assert cluster[2].partition().log_end_offset == 2
        assert cluster[1].partition().high_watermark == 1
        cluster.world.net.heal_all()
        assert await cluster[1].partition().committed(done.last_offset) is ErrorCode.none

    play(scene)


def test_what_a_follower_has_not_synced_does_not_count() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        cluster.world.disk("node-2").faults.sync_s = (5.0, 5.0)
        cluster[1].append(batch("b"))
        await sleep(2.0)
        assert cluster[2].partition().log_end_offset == 2
        assert cluster[1].partition().high_watermark == 1
        await sleep(4.0)
        assert cluster[1].partition().high_watermark == 2

    play(scene)


def test_where_syncs_do_not_count_what_is_written_does() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(flush_policy="os")
        for node in (1, 2, 3):
            cluster.world.disk(f"node-{node}").faults.sync_s = (50.0, 50.0)
        await cluster[1].write(batch("a"))
        assert cluster.world.loop.time() < 1

    play(scene)


def test_a_follower_hears_of_a_commit_though_nothing_more_is_written() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        await sleep(0.01)
        assert [cluster[node].partition().high_watermark for node in (2, 3)] == [1, 1]

    play(scene)


def test_one_stream_carries_all_partitions_of_a_pair_of_nodes() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=30)
        names = [TopicPartition("orders", index) for index in range(30)]
        for index, name in enumerate(names):
            await cluster[1 + index % 3].write(batch(f"v{index}"), name)
        await sleep(0.1)
        for name in names:
            logs = [log_bytes(cluster[node].partition(name)) for node in (1, 2, 3)]
            assert logs[0] == logs[1] == logs[2]
        for node in (1, 2, 3):
            assert len(cluster[node].replication.following._streams) == 2

    play(scene)


def test_a_follower_that_comes_late_is_sent_what_it_lacks() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.kill(3)
        cluster.change(isr=(BrokerId(1), BrokerId(2)))
        for number in range(50):
            await cluster[1].write(batch(f"v{number}"))
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert log_bytes(cluster[3].partition()) == log_bytes(cluster[1].partition())

    play(scene)


def test_a_follower_that_says_it_synced_more_than_it_has_is_refused() -> None:
    """It would count for what is not there."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.change(isr=(BrokerId(1), BrokerId(2)))
        lies = cluster[3].partition().machine
        await cluster.until(lambda: 3 in cluster.state().isr)
        cluster.kill(2)
        cluster.change(isr=(BrokerId(1), BrokerId(3)))
        await sleep(1.0)
        cluster[3].do(setattr, lies, "durable_end", 5)
        cluster.elect(1, isr=(BrokerId(1), BrokerId(3)))
        done = cluster[1].append(batch("b"))
        await sleep(2.0)
        assert cluster[1].partition().machine.outcome_of(done.last_offset) is None

    play(scene)


def test_a_slow_follower_holds_up_nobody() -> None:
    """Its room is used up, and from then on nothing is sent or kept for it."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=2, min_insync_replicas="2", flush_policy="os")
        cluster.world.net.link("node-1", "node-3").bytes_per_s = 1_000.0
        big = b"x" * 500_000
        for _ in range(40):
            await cluster[1].write(batch(big))
        assert cluster.world.loop.time() < 5
        assert cluster.state().isr == (1, 2)
        stream = cluster[1].replication.leading._streams[BrokerId(3)]
        assert stream._sent - stream._taken <= WINDOW_BYTES + 600_000
        assert cluster[2].partition().log_end_offset == 40
        cluster.world.net.heal_all()
        await cluster.until(lambda: 3 in cluster.state().isr, seconds=60_000)

    play(scene, replica_lag_time_max_ms="1000")


def test_a_batch_larger_than_a_frame_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_leader, "PAYLOAD_BYTES_MAX", 1_000)
    monkeypatch.setattr(streams_leader, "FRAME_BYTES", 300)

    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=2, leaders=[1, 1])
        for number in range(5):
            await cluster[1].write(batch(bytes([number]) * 5_000))
            await cluster[1].write(batch(f"small {number}"))
            await cluster[1].write(batch("beside"), TopicPartition("orders", 1))
        cluster[1].append(batch(b"x" * 5_000))
        cluster.world.net.reset("node-1", "node-2")  # in the middle of it
        cluster[1].append(batch(b"y" * 5_000))
        await cluster.until(lambda: cluster[2].partition().high_watermark == 12)
        for node in (2, 3):
            assert log_bytes(cluster[node].partition()) == log_bytes(cluster[1].partition())

    play(scene)


def test_partitions_of_one_stream_take_turns() -> None:
    """One that has gigabytes to catch up on does not hold up those that are written now."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(flush_policy="os")
        cluster.create("payments", flush_policy="os", leaders=[1])
        cluster.world.net.isolate("node-3")
        both = (BrokerId(1), BrokerId(2))
        cluster.change(isr=both)
        big = b"x" * 500_000
        for _ in range(60):
            await cluster[1].write(batch(big))
        for direction in (("node-1", "node-3"), ("node-3", "node-1")):
            cluster.world.net.link(*direction).bytes_per_s = 5e6
        cluster.world.net._cuts.clear()
        cluster.world.net.kick()
        await cluster.until(lambda: cluster[3].partition().log_end_offset > 0)
        before = cluster.world.loop.time()
        await cluster[1].write(batch("small"), PAYMENTS)
        took = cluster.world.loop.time() - before
        assert cluster[3].partition().log_end_offset < 60
        assert took < 3  # a window at this speed; all that is behind would take six seconds

    play(scene)


def test_a_follower_whose_disk_is_full_goes_on_when_there_is_room() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        cluster.create("payments", leaders=[1], min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        await cluster[1].write(batch("b"), PAYMENTS)
        faults = cluster.world.disk("node-3").faults
        faults.fail("append", path="*orders-0*", number=errno.ENOSPC, times=10_000)
        await cluster[1].write(batch("p1"), PAYMENTS)  # the other partition goes on
        done = cluster[1].append(batch("c"))
        await cluster.until(lambda: 3 not in cluster.state().isr, seconds=60)
        assert await cluster[1].partition().committed(done.last_offset) is ErrorCode.none
        assert 3 in cluster.state("payments").isr
        assert cluster[3].manager.is_disk_full
        faults.planned.clear()
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert values_of(cluster[3].partition()) == [b"a", b"c"]
        assert not cluster[3].manager.is_disk_full

    play(scene)


def test_commits_do_not_wait_for_a_follower_that_says_it_is_stuck() -> None:
    """Kafka's would, for replica.lag.time.max.ms."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        faults = cluster.world.disk("node-3").faults
        faults.fail("append", path="*orders-0*", number=errno.ENOSPC, times=10_000)
        before = cluster.world.loop.time()
        await cluster[1].write(batch("b"))
        assert cluster.world.loop.time() - before < 0.5
        assert cluster.state().isr == (1, 2)

    play(scene)


def test_a_follower_whose_disk_fails_stops_that_partition_only() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        cluster.create("payments", leaders=[1], min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.world.disk("node-3").faults.fail("append", path="*orders-0*")
        cluster[1].append(batch("b"))
        await cluster[1].write(batch("p1"), PAYMENTS)
        await cluster.until(lambda: 3 not in cluster.state().isr, seconds=60)
        assert ORDERS in cluster[3].manager.offline
        await cluster[1].write(batch("p2"), PAYMENTS)
        assert 3 in cluster.state("payments").isr

    play(scene)


def test_too_few_in_sync_refuse_acks_all_and_nothing_else() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.kill(2)
        cluster.kill(3)
        cluster.change(isr=(BrokerId(1),))
        refused = cluster[1].produce(batch("b"))
        assert isinstance(refused, Refusal)
        assert refused.error is ErrorCode.not_enough_replicas
        assert isinstance(cluster[1].produce(batch("c"), acks=1), Appended)
        assert cluster[1].partition().high_watermark == 1
        await cluster.restart(2)
        await cluster.until(lambda: 2 in cluster.state().isr)
        assert cluster[1].partition().high_watermark == 2
        await cluster[1].write(batch("d"))

    play(scene)
