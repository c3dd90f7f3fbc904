"""A policy that counts what is not synced does so once the disk knows of it."""

import errno

import pytest
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.partition import Appended
from replica_helpers import ORDERS, Node, batch, play, topic_of

OFFSETS = "*partition-offsets*"


def is_known(node: Node, name: TopicPartition = ORDERS) -> bool:
    offsets = node.manager.store.offsets
    return offsets.get(Kind.DOUBT, name) is not None and offsets.is_durable(Kind.DOUBT, name)


def refuse(node: Node) -> None:
    """What the checkpoint is written into takes nothing: as it is, or made anew."""
    node.env.machine.disk.faults.fail("append", path=OFFSETS, number=errno.ENOSPC, times=1000)


def heal(node: Node) -> None:
    node.env.machine.disk.faults.heal()


async def quiet(node: Node) -> None:
    node.manager.lead()  # the cluster knows that the disk was empty
    await node.manager.store.checkpoint()
    assert node.manager.store.offsets.get(Kind.DOUBT, ORDERS) is None


@pytest.mark.parametrize("policy", ["os", "interval"])
def test_a_policy_that_cannot_be_written_down_counts_nothing_unsynced(policy: str) -> None:
    async def scene(node: Node) -> None:
        await quiet(node)
        refuse(node)
        node.metadata.configure(node.manager, "orders", flush_policy=policy)
        partition = node.partition()
        done = node.produce(batch("a"))
        assert isinstance(done, Appended)
        assert partition.high_watermark == 0  # it waits for its sync
        await node.env.clock.sleep(1)
        assert partition.high_watermark == 1 and not is_known(node)
        node.env.machine.disk.faults.fail("sync", path="*.log")
        node.produce(batch("b"))
        assert partition.high_watermark == 1

    play(scene)


def test_images_that_come_while_it_cannot_be_written_down_say_nothing_new() -> None:
    async def scene(node: Node) -> None:
        await quiet(node)
        refuse(node)
        node.metadata.configure(node.manager, "orders", flush_policy="os")
        for name in ("one", "two"):
            node.metadata.create(node.manager, topic_of(name))
        said = [event for _, event, _ in node.env.log.events if event == "doubts_not_written"]
        assert len(said) == 1

    play(scene)


def test_a_policy_counts_as_soon_as_it_could_be_written_down() -> None:
    async def scene(node: Node) -> None:
        await quiet(node)
        refuse(node)
        node.metadata.configure(node.manager, "orders", flush_policy="os")
        await node.write(batch("a"))
        heal(node)
        await node.write(batch("b"))  # a checkpoint follows
        await node.env.clock.sleep(1)
        assert is_known(node)
        node.produce(batch("c"))
        assert node.partition().high_watermark == 3

    play(scene)


def test_a_topic_that_is_made_while_the_disk_is_full_syncs_first() -> None:
    payments = TopicPartition("payments", 0)

    async def scene(node: Node) -> None:
        await quiet(node)
        refuse(node)
        node.metadata.create(node.manager, topic_of("payments"))
        node.produce(batch("a"), payments)
        assert node.partition(payments).high_watermark == 0
        await node.env.clock.sleep(1)
        assert node.partition(payments).high_watermark == 1 and not is_known(node, payments)

    play(scene, configs={"payments": {"flush.policy": "os"}})


def test_a_partition_that_is_gone_meanwhile_hinders_nobody() -> None:
    async def scene(node: Node) -> None:
        await quiet(node)
        refuse(node)
        node.metadata.configure(node.manager, "orders", flush_policy="os")
        node.metadata.delete(node.manager, "orders")
        heal(node)
        await node.manager.rounds.checkpoint()
        node.metadata.create(node.manager, topic_of("orders", incarnation="second"))
        await node.write(batch("a"))

    play(scene)
