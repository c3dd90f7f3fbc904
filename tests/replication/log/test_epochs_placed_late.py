"""A checkpoint that is under way when a log begins anew writes the old list of epochs behind the removal; the snapshot that the
leader hands on then makes a recovery point durable above them, so that a start after a kill believes them of the new history."""

import asyncio

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.divergence_machine import GoOn, answer
from fencepost.replication.log import handed_on
from fencepost.replication.log.epochs_machine import EpochsMachine
from fencepost.replication.log.producer_snapshot import BATCH, ENTRY, write_snapshot
from log_helpers import START_MS, Node, append, batch_at, produce, run


def who_wrote(offset: int) -> bytes:
    entry = ENTRY.pack(0, -1, START_MS, START_MS, -1) + BATCH.pack(0, 0, offset - 1, START_MS)
    return write_snapshot(offset, {7: entry}, [])


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("late", [False, True])
def test_a_list_of_epochs_of_another_history_is_not_believed(how: str, late: bool) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        produce(log, 2, leader_epoch=7)  # this one led, and nobody copied it
        await node.sync()
        if late:
            faults = world.disk("n1").faults
            usual, faults.run_s = faults.run_s, (3, 3)
            checkpoint = asyncio.get_running_loop().create_task(node.store.checkpoint())
            await asyncio.sleep(0.001)
            faults.run_s = usual
            log.truncate_fully_and_start_at(200)
            await checkpoint
        else:
            await node.store.checkpoint()
            log.truncate_fully_and_start_at(200)
        handed_on.take(log, who_wrote(200))
        append(log, batch_at(200, leader_epoch=5))  # the leader's, of epoch 8, which has this of 5
        await node.sync()  # acknowledged: it may be in the ISR
        log = await node.restart(how)
        assert (log.log_start_offset, log.log_end_offset) == (200, 201)
        leaders = EpochsMachine()
        leaders.assign(5, 100)
        leaders.assign(8, 300)
        told = answer(
            leaders, (8, 300), 150, 310,
            last_epoch=log.epochs.latest, end_offset=log.log_end_offset, has_all=True,
        )  # fmt: skip
        assert (log.epochs.epochs, told) == ([5], GoOn())

    run(scenario)
