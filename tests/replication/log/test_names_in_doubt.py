"""Retention takes all of a log; the group's sync of the folder fails while a checkpoint is on its thread, whose own sync of the same
folder the kernel lets pass; the power goes, and with it the names that were made since the last good sync."""

import asyncio

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.checkpoint import Kind
from log_helpers import LOG, START_MS, Node, produce, run


async def checkpoint_beside_a_sync_that_fails(node: Node) -> None:
    """A group's sync of the folder fails while the checkpoint is on its thread."""
    faults = node.world.disk("n1").faults
    usual, faults.run_s = faults.run_s, (3, 3)
    task = asyncio.get_running_loop().create_task(node.store.checkpoint())
    await asyncio.sleep(0.001)
    faults.run_s = usual
    faults.fail("sync_folder", path=node.path("").rstrip("/"))
    with pytest.raises(OSError):
        await node.sync()
    await task


def test_what_was_deleted_stays_where_what_stands_for_it_is_in_doubt() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, file_delete_delay_ms=0)
        log = await node.start()
        produce(log, 1, producer_id=1, producer_epoch=0, base_sequence=0)
        await node.settle()
        log.committed = log.log_end_offset
        log.put(Kind.HIGH_WATERMARK, log.committed)
        await node.store.checkpoint()
        durable = set(node.files())
        log.roll(START_MS)
        log.delete_records_before(1)
        log.apply_retention(START_MS, log.log_end_offset)
        assert log.doomed and log.log_start_offset == log.log_end_offset == 1
        await checkpoint_beside_a_sync_that_fails(node)
        assert log.names_lost
        await asyncio.sleep(5)
        node.down("crash", torn=False)
        node.env = world.restart("n1")
        # The simulated disk does not forget names whose sync failed. A real one may (fsyncgate), and that is what names_lost is for.
        for name in node.files():
            if name not in durable:
                node.env.disk.remove(node.path(name))
        log = await node.start()
        assert log.producers.knows(1)

    run(scenario)


def test_what_stood_for_deleted_segments_may_be_lost_so_they_stay() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 1, producer_id=1, producer_epoch=0, base_sequence=0)
        log.roll(START_MS)
        produce(log, 3)
        await node.settle()
        log.roll(START_MS)  # a snapshot
        produce(log, 3)
        log.committed = log.log_end_offset
        log.put(Kind.HIGH_WATERMARK, log.committed)
        await node.sync()
        log.delete_records_before(2)
        log.apply_retention(START_MS, log.log_end_offset)
        produce(log, 1)
        log.roll(START_MS)
        produce(log, 1)  # a new name in the folder
        await checkpoint_beside_a_sync_that_fails(node)
        assert log.names_lost
        assert LOG in node.files()

    run(scenario)
