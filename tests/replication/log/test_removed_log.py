"""What was under way for a log when it was removed: none of it reaches the log that has its folder next."""

import asyncio

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import TopicPartition
from log_helpers import PARTITION, START_MS, TOPIC_ID, Node, append, batch_at, end_txn, produce, run


def test_a_sync_under_way_does_not_bring_a_removed_log_back() -> None:
    """1. An aborted transaction and a leader epoch wait for the next checkpoint. 2. A sync begins. 3. The replica is
    moved away, and the sync ends. 4. It is moved back: another history, in a folder of the same name."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=600)
        log = await node.start()
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        produce(log, count=2, **fields)
        await node.settle()
        end_txn(log, 7, commit=False)
        produce(log, leader_epoch=5)
        sync = world.loop.create_task(node.sync())
        await asyncio.sleep(0)
        node.store.delete([log])
        await sync
        assert log not in node.store.shared.unsettled
        new = node.log = node.store.open(PARTITION, TOPIC_ID, node.config)
        for leader_epoch in (8, 8, 8, 9, 9, 9):
            produce(new, count=3, leader_epoch=leader_epoch)
        for _ in range(2):
            await node.settle()
        produce(new, 30, count=3, leader_epoch=9)
        for _ in range(2):
            await node.settle()
        found = await node.restart("kill")
        assert (found.epochs.epochs, found.epochs.starts) == ([8, 9], [0, 9])
        assert found.aborted_between(0, found.log_end_offset) == []

    run(scenario)


@pytest.mark.parametrize("fails", [False, True])
def test_a_checkpoint_under_way_takes_nothing_of_a_removed_logs_successor(fails: bool) -> None:
    """The segment that retention took has the name of the one that the successor begins with."""

    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        log = await node.start()
        produce(log, 3, leader_epoch=4)
        log.roll(START_MS)
        produce(log, 2, leader_epoch=5)
        await node.sync()
        assert log.apply_retention(START_MS + 99_999, 3) == 1
        other = node.store.open(TopicPartition("other", 0), None, node.config)
        produce(other, 3)
        await node.store.sync([other])
        checkpoint = world.loop.create_task(node.store.checkpoint())
        await asyncio.sleep(0)
        node.store.delete([log])
        new = node.log = node.store.open(PARTITION, TOPIC_ID, node.config)
        append(new, batch_at(0, leader_epoch=8))
        if fails:
            world.disk("n1").faults.fail("sync", path="*/partition-offsets*")
        await asyncio.wait([checkpoint])
        assert (checkpoint.exception() is not None) == fails
        assert log not in node.store.shared.unsettled
        await node.settle()
        assert "00000000000000000000.log" in node.files()
        found = await node.restart("kill")
        assert (found.log_start_offset, found.log_end_offset) == (0, 1)
        assert (found.epochs.epochs, found.epochs.starts) == ([8], [0])

    run(scenario)
