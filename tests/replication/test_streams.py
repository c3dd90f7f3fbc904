"""From node to node: what a leader appends is on its followers, and counts when they have it."""

import errno
from asyncio import sleep

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.replication import streams_follower, streams_leader
from fencepost.replication.metrics import Counters
from fencepost.replication.partition import Appended, Refusal
from fencepost.replication.streams_leader import WINDOW_BYTES
from replica_cluster import Cluster, log_bytes, play, values_of
from replica_helpers import ORDERS, batch, surveyed

PAYMENTS = TopicPartition("payments", 0)


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


def test_deleted_records_go_on_followers_too() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        for number in range(10):
            await cluster[1].write(batch(f"v{number}"))
        cluster[1].do(cluster[1].partition().delete_records, 4)
        await sleep(0.05)
        assert [cluster[node].partition().log_start_offset for node in (1, 2, 3)] == [4, 4, 4]

    play(scene)


def test_deleted_is_what_no_living_replica_has() -> None:
    """Else a leader elected after the answer would bring it back (Kafka's DelayedDeleteRecords)."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        for number in range(10):
            await cluster[1].write(batch(f"v{number}"))
        leader = cluster[1].partition()
        cluster.world.net.cut("node-1", "node-3")
        cluster[1].do(leader.delete_records, 4)
        waiting = cluster.world.loop.create_task(leader.deleted(4))
        await sleep(0.5)
        assert not waiting.done()
        cluster.world.net.heal_all()
        assert await waiting is ErrorCode.none
        assert cluster[3].partition().log_start_offset == 4
        # Nobody waits for a dead one; the living must be asked for their new leader.
        cluster.kill(3)
        cluster[1].do(leader.delete_records, 6)
        assert await leader.deleted(6) is ErrorCode.none
        cluster.world.net.cut("node-1", "node-2")
        cluster[1].do(leader.delete_records, 8)
        waiting = cluster.world.loop.create_task(leader.deleted(8))
        await sleep(0.1)
        cluster.elect(2)
        assert await waiting is ErrorCode.not_leader_or_follower

    play(scene)


@pytest.mark.parametrize("seed", range(1, 9))  # what is not synced is lost by some
def test_one_that_was_away_deletes_before_it_joins(seed: int) -> None:
    """1. Records are deleted while node 3 is away. 2. It comes back, has all that is committed, and was in the ISR before it
    had written down where the log begins. 3. The power of all goes, and node 3 leads: the records were back.
    """

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        for number in range(10):
            await cluster[1].write(batch(f"v{number}"))
        await sleep(1.0)
        cluster.kill(3)
        cluster.change(isr=(BrokerId(1), BrokerId(2)))
        leader = cluster[1].partition()
        cluster[1].do(leader.delete_records, 4)
        assert await leader.deleted(4) is ErrorCode.none
        cluster.world.restart("node-3").machine.disk.faults.sync_s = (0.1, 0.2)
        await cluster.restart(3)
        while 3 not in cluster.state().isr:
            await sleep(0.001)
        for node_id in (1, 2, 3):
            cluster.crash(node_id)
        await cluster.restart(3)
        cluster.elect(3)
        assert cluster[3].partition().log_start_offset == 4

    play(scene, seed=seed)


def test_a_follower_that_fell_behind_the_start_of_the_log_begins_anew() -> None:
    """Also inside a batch: it is sent whole, and begins before the start of the log."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.kill(3)
        cluster.change(isr=(BrokerId(1), BrokerId(2)))
        await cluster[1].write(batch("b", "c", "d"))
        await cluster[1].write(batch("e"))
        cluster[1].do(cluster[1].partition().delete_records, 2)
        await cluster.restart(3)
        await cluster.until(lambda: 3 in cluster.state().isr)
        late = cluster[3].partition()
        assert (late.log_start_offset, late.log_end_offset) == (2, 5)
        assert late.high_watermark == 5

    play(scene)


def test_a_follower_that_retention_overtakes_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it follows: what it is to be sent next is deleted before it has room for it."""
    monkeypatch.setattr(streams_leader, "WINDOW_BYTES", 200)

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.world.net.cut("node-1", "node-3")
        cluster.change(isr=(BrokerId(1), BrokerId(2)))
        cluster.change_broker(3, fenced=True)
        for number in range(20):
            await cluster[1].write(batch(f"v{number}"))
        cluster[1].do(cluster[1].partition().delete_records, 18)
        cluster[1].partition().log.roll(0)
        cluster[1].do(cluster[1].partition().log.apply_retention, 0, 21)
        cluster.world.net.heal_all()
        cluster.change_broker(3, fenced=False)
        await cluster.until(lambda: 3 in cluster.state().isr)
        late = cluster[3].partition()
        assert (late.log_start_offset, late.log_end_offset) == (18, 21)
        parted = [each[2] for each in cluster[3].env.machine.events if each[1] == "logs_parted"]
        assert [each["answer"] for each in parted] == [
            "OutOfRange(log_start_offset=18, log_end_offset=21)"
        ]

    play(scene)


def test_partitions_that_are_not_on_all_their_replicas_are_counted() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(partitions=3, leaders=[1, 1, 2])
        assert surveyed(cluster[1].manager).under_replicated == 0
        cluster.change(isr=(BrokerId(1),))
        cluster.change(index=2, isr=(BrokerId(2),))
        assert surveyed(cluster[1].manager).under_replicated == 1

    play(scene)


def test_a_replica_that_is_added_is_filled_and_one_taken_away_is_deleted() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1, 2))
        for number in range(10):
            await cluster[1].write(batch(f"v{number}"))
        all_three = (BrokerId(1), BrokerId(2), BrokerId(3))
        cluster.change(replicas=all_three, adding=(BrokerId(3),))
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert len(values_of(cluster[3].partition())) == 10
        left = (BrokerId(1), BrokerId(3))
        cluster.change(replicas=left, isr=left, adding=(), removing=())
        assert cluster[2].manager.partition(ORDERS) is ErrorCode.not_leader_or_follower
        await cluster[1].write(batch("after"))
        await sleep(0.1)
        assert values_of(cluster[3].partition())[-1] == b"after"

    play(scene)


def test_what_a_follower_synced_while_its_leader_had_not_heard_of_the_new_epoch_counts() -> None:
    """1. A move ends: its leader stays, under a new epoch. 2. A follower hears of it first, and asks with what it has
    synced. 3. It syncs the rest, and says so; the leader does not know yet for whom. 4. The leader hears of the
    epoch and answers what was asked. A producer that waits for its last batches sends no more: nothing else would
    tell the leader ever."""

    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        cluster.world.disk("node-2").faults.sync_s = (0.5, 0.5)
        waiting = cluster[1].append(batch("b"))
        await cluster.until(lambda: cluster[2].partition().log_end_offset == 2)
        cluster.deaf.add(1)
        cluster.elect(1)
        await cluster.until(lambda: cluster[2].partition().machine.durable_end == 2)
        await sleep(0.1)
        cluster.deaf.clear()
        cluster.spread(1)
        await sleep(1.0)
        assert cluster[1].partition().high_watermark == waiting.last_offset + 1

    play(scene)


def test_a_topic_of_one_replica_is_written_while_it_moves() -> None:
    """Its minimum is one of one, not two of the two that it has on the way."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1,), min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        cluster.world.net.cut("node-1", "node-2")
        both = (BrokerId(2), BrokerId(1))
        cluster.change(replicas=both, adding=(BrokerId(2),), removing=(BrokerId(1),))
        assert await cluster[1].write(batch("b")) == 1
        cluster.world.net.heal_all()
        await cluster.until(lambda: 2 in cluster.state().isr)
        two = (BrokerId(2),)
        cluster.change(replicas=two, isr=two, adding=(), removing=(), leader=BrokerId(2))
        assert await cluster[2].write(batch("c")) == 2

    play(scene)


def test_a_topic_made_again_under_its_name_is_followed_anew() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create()
        await cluster[1].write(batch("a"))
        cluster.delete()
        cluster.create("other")
        await cluster[1].write(batch("b"), TopicPartition("other", 0))
        cluster.delete("other")
        assert cluster[2].replication.following._followed == {}
        stream = cluster[1].replication.leading._streams[BrokerId(2)]
        assert stream._feeds == {}

    play(scene)


def test_nothing_is_kept_of_who_asked_for_what_was_deleted() -> None:
    """A follower that is a little behind asks a leader that has heard of the deletion already, and lets go."""

    async def scene(cluster: Cluster) -> None:
        cluster.create("other", leaders=[1])
        await cluster[1].write(batch("a"), TopicPartition("other", 0))
        cluster.deaf.add(2)
        for number in range(3):
            cluster.create(f"short-{number}", leaders=[1])
            cluster.delete(f"short-{number}")
            await sleep(0.05)
        late = cluster[2]
        for happened in cluster.log[cluster.heard[2] :]:
            late.do(late.hear, happened)
            await sleep(0.05)
        stream = cluster[1].replication.leading._streams[BrokerId(2)]
        assert stream._early == {}

    play(scene)
