"""A start after a kill, and the power goes before its first checkpoint: what it took for durable may have been in the page cache only."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.log import Log
from fencepost.replication.log.store import LogStore
from log_helpers import FOLDER, PARTITION, START_MS, TOPIC_ID, Node, produce, run
from test_producers_outlive import delete_before, first


def commit(node: Node, log: Log) -> None:
    log.committed = log.log_end_offset
    node.store.offsets.put(Kind.HIGH_WATERMARK, PARTITION, log.committed)


async def deleted_without_a_snapshot(node: Node) -> Log:
    """1 wrote a segment that is out of the log, durably; it is there yet, for the disk took no snapshot."""
    log = await node.start()
    first(log, 1)
    await node.settle()
    faults = node.world.disk("n1").faults
    faults.fail("create", path="*.producers")
    log.roll(START_MS)
    produce(log, 2)
    commit(node, log)
    await node.sync()
    faults.fail("create", path="*.producers")
    delete_before(log, 1)
    await node.store.checkpoint()
    assert log.doomed and not log.snapshots
    return log


@pytest.mark.parametrize("seed", range(10))
def test_a_start_removes_nothing_for_a_snapshot_that_a_killed_process_did_not_sync(
    seed: int,
) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await deleted_without_a_snapshot(node)
        log.roll(START_MS)  # its snapshot is just where the checkpoint says that all is settled
        produce(log)
        commit(node, log)
        await node.sync()
        await node.store.offsets.flush()
        node.down("kill")
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        assert store.open(PARTITION, TOPIC_ID, node.config).snapshots == [3]
        log = await node.restart("crash")
        assert log.producers.knows(1)
        produce(log)
        commit(node, log)
        log.apply_retention(START_MS, log.log_end_offset)
        for _ in range(2):
            await node.settle()
        log = await node.restart("crash")
        assert log.bases[0] == 1 and log.producers.knows(1)

    run(scenario, seed)


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_is_synced_by_a_start_whose_boot_nobody_could_write_down(seed: int) -> None:
    """The killed process had no room for that. To the next one it seems that the power went, and what it reads is on the disk."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await deleted_without_a_snapshot(node)
        node.store.offsets.boot_id = "before"  # as it is until that is written
        node.store.offsets.rewrite()
        log.roll(START_MS)
        produce(log)
        commit(node, log)
        await node.sync()
        await node.store.offsets.flush()
        log = await node.restart("kill")
        assert not node.store.same_boot
        log.apply_retention(START_MS, log.log_end_offset)
        await node.settle()
        log = await node.restart("crash")
        assert log.producers.knows(1)

    run(scenario, seed)
