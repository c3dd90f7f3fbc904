"""Retention takes the records of an aborted transaction while a round of compaction is under way."""

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import START_MS, Node, append, batch_at, end_txn, run
from written_helpers import seen


@pytest.mark.parametrize("pause", range(60))
def test_what_retention_takes_during_a_round_is_aborted_yet_when_a_crash_brings_it_back(
    pause: int,
) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, compact=True)
        log = await node.start()
        append(
            log, batch_at(0, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        )
        log.roll(START_MS)
        end_txn(log, 5, commit=False)
        log.roll(START_MS)
        await node.settle()
        assert log.is_start_durable
        round_ = world.loop.create_task(log.compact(START_MS, 2, force=True))
        await node.env.clock.sleep(pause / 10_000)
        # the other task of rounds.py: retention by age or size, or DeleteRecords
        log.delete_records_before(1)
        gone = log.apply_retention(START_MS, 2)
        await round_
        log = await node.restart("kill")
        assert log.log_start_offset == 0, gone  # no checkpoint has said otherwise
        assert seen(log, 0, 2) == {}, "an aborted record is shown as committed"

    run(scenario)
