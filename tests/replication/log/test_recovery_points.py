"""What a checkpoint says of a log is true, whenever the node ends: while it is cut, synced, or can't be opened."""

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.replication.log.checkpoint import Kind, PartitionOffsets
from fencepost.replication.log.store import LogStore
from log_helpers import (
    FOLDER,
    LOG,
    PARTITION,
    TOPIC_ID,
    Node,
    fill,
    produce,
    read_all,
    rewrite,
    run,
)


def test_a_truncation_is_not_taken_for_lost_data() -> None:
    """What the checkpoint claims is lowered, durably, before the log is cut."""

    async def scenario(world: World) -> None:
        node = Node(world)
        await fill(node, 6, 6)
        await node.settle()
        for step in range(1, 40):
            end = node.log.log_end_offset
            world.crash_at_disk_op("n1", step)
            try:
                await world.on(node.env, _truncate(node, 2))
            except NodeLost:
                node.env = world.restart("n1")
                await node.start()
                assert node.log.log_end_offset in (2, end)
                produce(node.log, 6 - node.log.log_end_offset)
                await node.settle()
            else:
                break
        else:
            pytest.fail("never done")

    run(scenario)


async def _truncate(node: Node, offset: int) -> None:
    node.log.truncate_to(offset)


def test_the_recovery_point_in_the_checkpoint_is_not_above_what_is_settled() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 3)
        await node.sync()
        assert node.log.recovery_point == 3 and node.log.settled_point == 0
        world.disk("n1").faults.fail("sync", path="*leader-epoch-checkpoint*")
        await node.store.checkpoint()
        assert node.log.settled_point == 0
        await node.store.checkpoint()
        offsets = PartitionOffsets(node.env, f"{FOLDER}/partition-offsets")
        offsets.load()
        assert node.log.settled_point == offsets.get(Kind.RECOVERY_POINT, PARTITION) == 3

    run(scenario)


def test_what_is_written_while_a_log_that_was_cut_is_synced_is_synced_next() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        data = await fill(node)
        world.crash("n1", lose_unsynced=False)
        rewrite(node, LOG, data[:-100])
        log = await node.restart("kill")
        assert log.log_end_offset == 4
        produce(log)
        sync = world.loop.create_task(node.sync())
        await node.env.clock.sleep(0)
        produce(log)
        await sync
        assert log.recovery_point == 5
        await node.sync()
        assert log.recovery_point == 6

    run(scenario)


def test_a_log_that_could_not_be_opened_claims_nothing() -> None:
    """A checkpoint must not say that its tail is durable, nor that this boot has seen all logs whole."""

    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 3, producer_id=1, producer_epoch=0, base_sequence=-1)
        await node.settle()
        produce(node.log, 3)
        data = read_all(node.log)
        world.crash("n1", lose_unsynced=False)
        half = len(data) - 30
        rewrite(node, LOG, data[:half])
        world.kill("n1")
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        world.disk("n1").faults.fail("sync", path="*.log")
        with pytest.raises(OSError, match="Input/output"):
            store.open(PARTITION, TOPIC_ID, node.config)
        assert store.shared.unsettled == {} and store.shared.budget.count == 0
        await store.opened([])
        await store.checkpoint()
        assert store.offsets.get(Kind.RECOVERY_POINT, PARTITION) == 3
        rewrite(node, LOG, data[:half])
        await node.restart("kill")  # on the boot that did not see it whole
        assert read_all(node.log) == data[: 5 * 90]

    run(scenario)
