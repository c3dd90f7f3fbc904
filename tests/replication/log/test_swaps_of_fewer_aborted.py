"""A swap that ends half-way, of a segment in which nothing is left of the transactions that were aborted."""

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.replication.log.producer_snapshot import WINDOW
from log_helpers import START_MS, end_txn, put, read_all, records_in, run
from swap_helpers import LATER_MS, compacting, round_of


async def two_kills(world: World, step: int) -> bool:
    """In each of the rounds that could take the entry of an aborted transaction, and its marker, out."""
    node = compacting(world)
    log = await node.start()
    put(log, ("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    end_txn(log, 5, commit=False)
    put(log, ("k", "1"))
    log.roll(START_MS)
    for number in range(1, 1 + WINDOW):  # so that nobody needs to know the one that was aborted
        whose = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        put(log, (f"b{number}", "1"), transactional=True, **whose)
    end_txn(log, 5, commit=True)
    died = 0
    for number in range(1, 6):
        log.roll(START_MS)
        put(log, ("z", f"{number}"))
        await node.settle()
        if number in (2, 3):
            world.crash_at_disk_op("n1", step, kill=True)
        try:
            await world.on(node.env, round_of(node, START_MS + number * LATER_MS))
        except NodeLost:
            died += 1
            node.env = world.restart("n1")
            log = await node.start()
        world.disk("n1").on_operation = None
    kept = {record.key for record in records_in(read_all(log)) if record.value is not None}
    assert b"b1" in kept, f"what was committed is gone, step {step}"
    return died > 0


def test_what_a_producer_committed_outlives_two_swaps_that_starts_finish() -> None:
    """1. Of an aborted transaction no record is left: a round makes no index of aborted ones   2. the node is killed behind the
    rename of the log, and the start kept the old index, with an entry of which soon no marker is left   3. so whatever that producer
    wrote later was taken for aborted: readers of what is committed did not see it, and the next round dropped it.
    """
    for step in range(1, 60):
        died = []

        async def one(world: World, step: int = step, died: list[bool] = died) -> None:
            died.append(await two_kills(world, step))

        run(one)
        if not any(died):
            assert step > 20
            return
    pytest.fail("the round never got to its end")
