"""What was cut, in the page cache alone, whatever becomes of the process or the disk before that is durable."""

import asyncio

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import Node, append, batch_at, end_txn, produce, run


@pytest.mark.parametrize("how", ["killed", "a failed sync"])
def test_an_abort_that_was_cut_off_does_not_come_back_with_the_power(how: str) -> None:
    """Its index is cut in the page cache: what was killed before it synced that, or saw a sync of it fail, has to be made good."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        txn = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        append(log, batch_at(3, base_sequence=0, **txn))
        end_txn(log, 7, commit=False)
        await node.settle()
        log.truncate_to(3)
        produce(log)
        if how == "killed":
            checkpoint = asyncio.ensure_future(node.store.checkpoint())
            await asyncio.sleep(0)
            checkpoint.cancel()
            log = await node.restart("kill")
        else:
            world.disk("n1").faults.fail("sync", path="*.txnindex", times=2)
            for _ in range(3):
                await node.settle()
        produce(log)
        append(log, batch_at(5, base_sequence=0, **txn))
        end_txn(log, 7, commit=True)
        await node.settle()
        assert log.settled_point == 7
        log = await node.restart("crash")
        assert (log.log_end_offset, log.aborted_between(0, 7)) == (7, [])

    for seed in range(10):
        run(scenario, seed)


def test_a_tail_whose_cut_could_not_be_synced_is_not_back_behind_what_came_instead() -> None:
    """The process that saw the sync fail may have been killed; the next one finds the cut in the page cache, and no more than that."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 6, leader_epoch=1)
        await node.settle()
        log.truncate_to(3)
        world.disk("n1").faults.fail("sync", path="*.log", times=1)
        with pytest.raises(OSError, match="Input/output"):
            produce(log, leader_epoch=2)
        log = await node.restart("kill")
        assert log.log_end_offset == 3
        produce(log, leader_epoch=2)
        await node.settle()
        log = await node.restart("crash")
        assert (log.log_end_offset, log.epochs.epochs) == (4, [1, 2])

    for seed in range(10):
        run(scenario, seed)
