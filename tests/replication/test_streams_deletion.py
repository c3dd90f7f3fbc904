"""From node to node: records that are deleted, or overtaken by retention, are gone on every replica."""

from asyncio import sleep

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication import streams_leader
from replica_cluster import Cluster, play
from replica_helpers import batch


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
