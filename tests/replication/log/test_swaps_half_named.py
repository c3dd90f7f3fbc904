"""A swap that ended between the names of its files: the last step of compaction, done again by a start."""

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from log_helpers import START_MS, end_txn, put, run
from swap_helpers import compacting, four_rounds, open_in_a_copy, round_of


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_an_aborted_transaction_outlives_a_swap_that_is_finished_by_a_start(how: str) -> None:
    """1. A round empties the batch of an aborted transaction, which stays as its producer's last   2. `.txnindex` has its name
    already and `.log` has not, when the node dies   3. the start took that index for one of the old segment   4. so for the next
    rounds the marker ended nothing, and went   5. whoever copied the log found a transaction that nothing ever ends.
    """

    async def scenario(world: World, step: int) -> bool:
        node = compacting(world)
        log = await node.start()
        put(log, ("k", "1"))
        put(log, ("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        end_txn(log, 5, commit=False)
        put(log, ("k", "2"))
        log.roll(START_MS)
        put(log, ("z", "1"))
        await node.settle()
        world.crash_at_disk_op("n1", step, kill=how == "kill")
        try:
            await world.on(node.env, round_of(node, START_MS))
        except NodeLost:
            node.env = world.restart("n1")
            await node.start()
        else:
            return False
        await four_rounds(node)
        assert open_in_a_copy(node) == 0, f"a transaction is open for ever, step {step}"
        return True

    for step in range(1, 60):
        died = []

        async def one(world: World, step: int = step, died: list[bool] = died) -> None:
            died.append(await scenario(world, step))

        for seed in range(4 if how == "crash" else 1):
            run(one, f"{how} {seed}")
        if not any(died):
            assert step > 20
            return
    pytest.fail("the round never got to its end")
