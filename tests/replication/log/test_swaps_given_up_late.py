"""A swap that is given up behind the rename of its log, as the folder could not be synced."""

from fencepost.chaos.sim.world import NodeLost, World
from log_helpers import START_MS, end_txn, put, run
from swap_helpers import compacting, four_rounds, open_in_a_copy, round_of


async def given_up(world: World, step: int, then: int) -> None:
    node = compacting(world)
    log = await node.start()
    put(log, ("k", "1"))
    log.roll(START_MS)
    put(log, ("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    end_txn(log, 5, commit=False)
    put(log, ("k", "2"))
    log.roll(START_MS)
    put(log, ("z", "1"))
    await node.settle()

    def strike() -> None:
        world.disk("n1").faults.fail("sync_folder", path=node.path("").rstrip("/"))
        world.crash_at_disk_op("n1", then, kill=True)

    world.at_disk_op("n1", step, strike)
    try:
        await world.on(node.env, round_of(node, START_MS))
    except NodeLost:
        pass
    except OSError:
        node.down("kill")
    else:
        node.down("kill")
    world.disk("n1").on_operation = None
    world.heal()
    node.env = world.restart("n1")
    await node.start()
    await four_rounds(node)
    assert open_in_a_copy(node) == 0, f"a transaction is open for ever: {step}, {then}"


def test_a_kill_while_a_swap_is_given_up_leaves_all_of_its_aborted_transactions() -> None:
    """1. `.log.swap` is there, and the folder can't be synced: what was written is removed again, indexes first   2. killed there, a
    start finished the swap with the index of aborted transactions of the first of its old segments alone.
    """
    for step in range(8, 32):
        for then in range(1, 10):

            async def one(world: World, step: int = step, then: int = then) -> None:
                await given_up(world, step, then)

            run(one)
