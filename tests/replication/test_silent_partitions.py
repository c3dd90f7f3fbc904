"""Partitions to which nothing more is written: what was under way counts all the same, and whoever waits hears of it."""

from asyncio import Task, sleep
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster, Scene, play
from replica_helpers import batch

FIRST, SECOND, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)


def waiting_for(cluster: Cluster, offset: int) -> "Task[ErrorCode]":
    """Somebody deletes what is before `offset` at the leader, and waits until nobody has it."""
    leader = cluster[1].partition()
    cluster[1].do(leader.delete_records, offset)
    return cluster.world.loop.create_task(leader.deleted(leader.log_start_offset))


def play_with_policies(scene: Scene, *policies: str) -> None:
    """Each node its own, as while the setting of all of them is changed, one after the other."""

    async def main(world: World) -> None:
        cluster = Cluster(world)
        for node, policy in enumerate(policies, 1):
            cluster.node_config = {**cluster.node_config, "log.flush.policy": policy}
            await cluster.start(node)
        cluster.create(min_insync_replicas="2")
        await scene(cluster)

    with World(1) as world:
        world.run(main(world))


@pytest.mark.parametrize(("of_leader", "of_followers"), [("ack", "os"), ("os", "ack")])
def test_nodes_of_another_flush_policy_are_not_waited_for_in_vain(
    of_leader: str, of_followers: str
) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster[1].append(batch("a"))
        await sleep(1)
        assert cluster[1].partition().high_watermark == 1

    play_with_policies(scene, of_leader, of_followers, of_followers)


def test_what_a_follower_of_policy_ack_has_not_synced_does_not_count_for_any_leader() -> None:
    """After a power cut it says that it lacks nothing, and may lead."""

    async def scene(cluster: Cluster) -> None:
        cluster.world.disk("node-3").faults.sync_s = (1.0, 1.0)
        cluster[1].append(batch("a"))
        await sleep(0.5)
        assert cluster[1].partition().high_watermark == 0
        await sleep(1)
        assert cluster[1].partition().high_watermark == 1

    play_with_policies(scene, "os", "os", "ack")


def test_a_policy_that_waits_for_no_sync_ends_the_wait_for_one_that_runs() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        await cluster[1].write(batch("a"))
        for node in (2, 3):
            cluster.world.disk(f"node-{node}").faults.sync_s = (60, 60)
        cluster[1].append(batch("b"))
        await sleep(0.2)
        cluster.configure(flush_policy="os")
        await sleep(0.5)
        assert cluster[1].partition().high_watermark == 2
        await sleep(10)
        assert cluster.proposals == [], "nobody lags"

    play(scene)


def test_a_policy_that_waits_for_syncs_syncs_what_would_have_been_synced_in_an_hour() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2", flush_policy="interval", flush_ms="3600000")
        await cluster[1].write(batch("a"))
        cluster.world.net.cut("node-1", "node-3")
        cluster[1].append(batch("b"))
        await sleep(0.5)
        cluster.configure(flush_policy="ack")
        cluster.world.net.heal_all()
        await sleep(5)
        assert cluster[1].partition().high_watermark == 2
        assert cluster[2].partition().machine.durable_end == 2

    play(scene)


def test_a_follower_that_began_anew_says_where_its_log_starts() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="2")
        for number in range(3):
            await cluster[1].write(batch(f"v{number}"))
        cluster.kill(3)
        cluster.change(isr=(FIRST, SECOND))
        for number in range(7):
            await cluster[1].write(batch(f"w{number}"))
        assert await waiting_for(cluster, -1) is ErrorCode.none
        await sleep(1)
        await cluster.restart(3)
        await cluster.until(lambda: THIRD in cluster.state().isr)
        asked: Any = waiting_for(cluster, -1)
        await sleep(1)
        assert asked.done()

    play(scene)


def test_a_deletion_waits_for_no_replica_that_was_taken_away() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1,), leaders=(1,))
        for number in range(5):
            await cluster[1].write(batch(f"v{number}"))
        cluster.world.disk("node-2").faults.sync_s = (3.0, 3.0)
        cluster.change(replicas=(FIRST, SECOND), adding=(SECOND,))
        await sleep(0.5)
        cluster.world.net.cut("node-1", "node-2")
        asked = waiting_for(cluster, 4)
        await sleep(0.5)
        assert not asked.done()
        cluster.change(replicas=(FIRST,), adding=(), leader=FIRST)
        await sleep(1)
        assert asked.done()

    play(scene)


def test_a_deletion_in_a_new_epoch_waits_for_those_in_sync_that_nobody_has_heard_yet() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        for number in range(5):
            await cluster[1].write(batch(f"v{number}"))
        cluster.world.net.cut("node-1", "node-3")
        cluster.elect(1)
        await sleep(0.5)
        asked = waiting_for(cluster, 4)
        await sleep(0.5)
        assert THIRD in cluster.state().isr
        assert not asked.done()
        cluster.world.net.heal_all()
        await sleep(5)
        assert asked.done()

    play(scene)
