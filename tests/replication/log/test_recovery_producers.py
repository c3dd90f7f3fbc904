"""Producers whose records were deleted are known after a start without a snapshot that it may believe."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import START_MS, Node, end_txn, produce, run


@pytest.mark.parametrize("what", ["kill", "crash", "the disk was full"])
def test_producers_are_known_when_what_they_wrote_was_deleted(what: str) -> None:
    """1. A roll leaves no snapshot that a start believes: it was above the recovery point, or the disk was full.
    2. DeleteRecords takes the segments that would have been replayed. 3. The node is killed.
    It knew of a producer what was true once: its next batch was out of order, and a transaction that had ended was open.
    """

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, producer_id=1, producer_epoch=0, base_sequence=0)
        produce(log, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
        log.roll(START_MS)
        produce(log, producer_id=1, producer_epoch=0, base_sequence=1)
        await node.settle()
        produce(log, producer_id=1, producer_epoch=0, base_sequence=2)
        end_txn(log, 2, commit=True)
        if what == "the disk was full":
            world.disk("n1").faults.fail("append", path="*.producers", number=errno.ENOSPC)
        log.roll(START_MS)
        produce(log)
        await node.sync()
        if what != "the disk was full":
            log = await node.restart(what)
        await node.settle()
        log.delete_records_before(log.log_end_offset)
        log.apply_retention(START_MS, log.log_end_offset)
        await node.settle()
        log = await node.restart("kill")
        assert log.bases == [5], "nothing was deleted"
        known = {each.producer_id: each for each in log.producers.states()}
        assert known[1].last_sequence == 2
        assert known[2].txn_first_offset < 0

    run(scenario)


def test_a_producer_of_which_all_was_deleted_is_known_as_long_as_its_batches_are_there() -> None:
    """Without a snapshot a start read from the log start on: a retry of what was deleted meanwhile was written again."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, producer_id=1, producer_epoch=0, base_sequence=0)
        produce(log)
        await node.sync()
        log.delete_records_before(log.log_end_offset)
        before = log.producers.states()
        await node.settle()
        log = await node.restart("kill")
        assert (log.log_start_offset, log.bases) == (2, [0])
        known = [state._replace(seen_ms=0) for state in log.producers.states()]
        assert known == [state._replace(seen_ms=0) for state in before]

    run(scenario)
