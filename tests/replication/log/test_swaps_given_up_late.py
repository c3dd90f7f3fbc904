"""A swap that is given up behind the rename of its log, as the folder could not be synced."""

from uuid import UUID

from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import headers_of
from log_helpers import START_MS, Node, append, end_txn, put, read_all, run

COPY = TopicPartition("copy", 0)
LATER_MS = 1_000


async def round_of(node: Node, now_ms: int) -> None:
    await node.log.compact(now_ms, node.log.log_end_offset, force=True)


async def given_up(world: World, step: int, then: int) -> None:
    node = Node(world, compact=True, delete=False, delete_retention_ms=0, segment_bytes=1 << 20)
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
    log = await node.start()
    for number in range(1, 5):
        put(log, ("k", f"{number}"))
        log.roll(START_MS)
        put(log, ("z", f"{number}"))
        await node.settle()
        await round_of(node, START_MS + number * LATER_MS)
    copy = node.store.open(COPY, UUID(int=7), node.config)
    data = read_all(log)
    for position, header in headers_of(data):
        append(copy, data[position : position + header.size])
    assert copy.producers.open_count() == 0, f"a transaction is open for ever: {step}, {then}"


def test_a_kill_while_a_swap_is_given_up_leaves_all_of_its_aborted_transactions() -> None:
    """1. `.log.swap` is there, and the folder can't be synced: what was written is removed again, indexes first   2. killed there, a
    start finished the swap with the index of aborted transactions of the first of its old segments alone.
    """
    for step in range(8, 32):
        for then in range(1, 10):

            async def one(world: World, step: int = step, then: int = then) -> None:
                await given_up(world, step, then)

            run(one)
