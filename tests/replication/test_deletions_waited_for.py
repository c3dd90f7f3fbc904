"""Whom a deletion waits for before it is answered: whoever may lead next, and the disk."""

import asyncio
from asyncio import sleep

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.batch import splice
from fencepost.replication.divergence_machine import Cut
from replica_cluster import Cluster, play
from replica_helpers import NONE, Metadata, Node, Restarts, batch, topic_of


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in numbers)


def test_a_deletion_waits_for_who_may_be_in_the_isr_already() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.answer = lambda _node, _wish: ErrorCode.ineligible_replica
        cluster.create()
        cluster.change(isr=ids(1, 2))
        for value in "abcdefghij":
            await cluster[1].write(batch(value))
        await sleep(1.0)
        leader = cluster[1].partition()
        assert cluster[3].partition().log_end_offset == 10
        # The controller takes node 3 in, and the leader has not heard it yet.
        cluster.deaf.add(1)
        cluster.answer = lambda _node, _wish: None
        await cluster.until(lambda: 3 in cluster.state().isr)
        assert leader.machine.isr.maximal_isr == {1, 2, 3} and leader.machine.isr.isr == {1, 2}
        # Its stream ends, and records are deleted.
        cluster.world.net.cut("node-1", "node-3")
        await cluster.until(lambda: not leader.machine.replicas[3].may_join, 60.0)
        assert cluster[1].do(leader.delete_records, 7) == 7
        await cluster[1].manager.rounds.checkpoint()
        waiting = asyncio.ensure_future(leader.deleted(7))
        await sleep(5.0)
        assert not waiting.done(), "node 3 may lead next, and has not deleted anything"
        cluster.deaf.discard(1)
        cluster.world.net.heal_all()
        async with asyncio.timeout(60.0):
            assert await waiting is NONE
        assert cluster[3].partition().log_start_offset == 7

    play(scene)


@pytest.mark.parametrize("policy", ["ack", "interval", "os"])
def test_a_deletion_that_was_answered_outlives_a_kill(policy: str) -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"flush.policy": policy}})
        start = Restarts(world, metadata)

        async def first(node):
            for value in "abcdefghij":
                await node.write(batch(value))
            partition = node.partition()
            assert partition.delete_records(10) == 10
            await node.manager.rounds.checkpoint()  # as the handler does
            assert await partition.deleted(10) is NONE

        async def second(node):
            assert node.partition().log_start_offset == 10

        start(first, stop=False)
        start(second)


def test_a_deletion_waits_no_more_for_who_was_refused() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.answer = lambda _node, _wish: ErrorCode.ineligible_replica
        cluster.create()
        cluster.change(isr=ids(1, 2))
        for value in "abcdefghij":
            await cluster[1].write(batch(value))
        await sleep(1.0)
        leader = cluster[1].partition()
        cluster.answer = lambda _node, _wish: ErrorCode.request_timed_out
        await cluster.until(lambda: leader.machine.isr.is_in_flight)
        cluster.world.net.cut("node-1", "node-3")
        await cluster.until(lambda: not leader.machine.replicas[3].may_join, 60.0)
        cluster[1].do(leader.delete_records, 7)
        await cluster[1].manager.rounds.checkpoint()
        waiting = asyncio.ensure_future(leader.deleted(7))
        await sleep(1.0)
        cluster.answer = lambda _node, _wish: ErrorCode.ineligible_replica
        async with asyncio.timeout(5.0):
            assert await waiting is NONE

    play(scene)


def test_what_a_follower_says_of_its_log_s_start_outlives_a_kill() -> None:
    """It had begun at 101, durably; and then at 100, as the batch there came whole. The leader took it into the in-sync set for the
    first, it was killed, led, and showed what had been deleted."""
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)
        told: list[int] = []

        async def follow(node: Node) -> None:
            metadata.change(
                node.manager, "orders", leader=BrokerId(2), isr=ids(2), replicas=ids(1, 2),
                leader_epoch=3,
            )  # fmt: skip
            partition = node.partition()
            partition.cut(Cut(101, anew=True))
            async with asyncio.timeout(5.0):
                while partition.counted_log_start != 101:
                    await sleep(0.01)
            sent = batch("a", "b", "c")
            splice(sent, 0, 100, 3)
            partition.append_as_follower(sent, 3)
            partition.follow_leader(103, 101)
            assert partition.log_start_offset == 101
            told.append(partition.counted_log_start)

        async def come_back(node: Node) -> None:
            told.append(node.partition().log_start_offset)

        start(follow, stop=False)
        start(come_back)
        assert told == [100, 100]
