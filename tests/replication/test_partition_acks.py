"""When a write to one partition counts, and who is told so: syncs, policies, a leadership that ends."""

import asyncio

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.partition import Appended
from replica_helpers import NONE, Node, acknowledged, batch, error_of, play

E = ErrorCode


def test_acks_all_is_answered_after_the_sync_and_not_before() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"))
        assert partition.high_watermark == 0
        assert await acknowledged(partition, 0, -1) == ("later", NONE)
        assert partition.log.recovery_point == 1

    play(scene)


def test_acks_one_waits_for_our_own_disk_where_the_policy_says_so() -> None:
    """flush.policy=ack promises that what is acknowledged survives a power cut; it has no footnote."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"), acks=1)
        assert await acknowledged(partition, 0, 0) == ("at once", NONE)
        assert await acknowledged(partition, 0, 1) == ("later", NONE)
        assert partition.log.recovery_point == 1

    play(scene)


@pytest.mark.parametrize(("policy", "synced_after_s"), [("interval", 1), ("os", 60)])
def test_other_policies_answer_at_once_and_sync_later(policy: str, synced_after_s: int) -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"))
        assert partition.high_watermark == 1
        for acks in (-1, 1):
            assert await acknowledged(partition, 0, acks) == ("at once", NONE)
        await node.env.clock.sleep(synced_after_s - 0.1)
        assert partition.log.recovery_point == 0
        await node.env.clock.sleep(0.2)
        assert partition.log.recovery_point == 1

    play(scene, configs={"orders": {"flush.policy": policy}})


def test_what_was_written_under_another_policy_is_synced_when_syncs_begin_to_count() -> None:
    """A leader waits for what its followers have synced, and theirs was to be synced within a minute."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"))
        await asyncio.sleep(1)
        assert partition.log.recovery_point == 0
        node.metadata.configure(node.manager, "orders", flush_policy="ack")
        await asyncio.sleep(0.1)
        assert partition.log.recovery_point == partition.machine.durable_end == 1

    play(scene, configs={"orders": {"flush.policy": "os"}})


def test_so_many_records_are_synced_before_their_time() -> None:
    async def scene(node: Node) -> None:
        node.produce(batch("a", "b"))
        await node.env.clock.sleep(0.1)
        assert node.partition().log.recovery_point == 0
        node.produce(batch("c"))
        await node.env.clock.sleep(0.1)
        assert node.partition().log.recovery_point == 3

    play(scene, configs={"orders": {"flush.policy": "os", "flush.messages": "3"}})


def test_one_sync_serves_all_who_wrote_in_a_turn() -> None:
    async def scene(node: Node) -> None:
        for number in range(10):
            node.produce(batch(str(number)))
        assert await node.partition().committed(9) is NONE
        assert node.manager.counters.syncs == 1

    play(scene)


def test_waiting_for_a_commit_ends_with_the_leadership() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.sync_s = (10, 10)
        node.produce(batch("a"))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(partition.committed(0))
            await node.env.clock.sleep(0.1)
            two = (BrokerId(1), BrokerId(2))
            node.metadata.change(node.manager, "orders", leader=BrokerId(2), replicas=two, isr=two)
        assert waiting.result() is E.not_leader_or_follower
        assert error_of(node.produce(batch("b"))) is E.not_leader_or_follower

    play(scene)


def test_who_waits_where_a_partition_moves_away_is_sent_after_it() -> None:
    """Kafka says UNKNOWN_TOPIC_OR_PARTITION only of what is nowhere: a client names no other leader to itself on that."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.sync_s = (10, 10)
        node.produce(batch("a"))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(partition.committed(0))
            await node.env.clock.sleep(0.1)
            two = (BrokerId(2),)
            node.metadata.change(node.manager, "orders", leader=BrokerId(2), replicas=two, isr=two)
        assert waiting.result() is E.not_leader_or_follower

    play(scene)


def test_who_waits_for_a_sync_is_answered_when_syncs_count_no_more() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.sync_s = (0.2, 0.2)
        node.produce(batch("a"), acks=1)
        await asyncio.sleep(0.1)  # a sync is under way, and does not cover what comes now
        done = node.produce(batch("b"), acks=1)
        assert isinstance(done, Appended)
        waiting = asyncio.ensure_future(acknowledged(partition, done.last_offset, 1))
        await asyncio.sleep(0)
        node.metadata.configure(node.manager, "orders", flush_policy="os")
        async with asyncio.timeout(5):
            assert (await waiting)[1] is NONE

    play(scene)
