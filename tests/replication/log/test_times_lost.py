"""The index of times of the file that is written is shorter on the disk than that of offsets: neither is synced at a clean stop."""

from fencepost.chaos.sim.world import World
from fencepost.replication.log import snapshots
from fencepost.replication.log.log import Log
from fencepost.replication.log.search import Seek
from log_helpers import START_MS, Node, append, batch_at, run

LATE = START_MS + 1_000_000


def _asked(node: Node) -> tuple[int, int]:
    found = node.log.search(Seek(LATE), node.log.log_end_offset)
    return node.log.active.largest_timestamp(), -1 if found is None else found.offset


def out_of_order(log: Log) -> None:
    """What comes behind these is older than the last."""
    for offset, timestamp in enumerate((START_MS, START_MS, LATE)):
        append(log, batch_at(offset, timestamp=timestamp))


def test_power_lost_behind_a_clean_stop_makes_no_record_older() -> None:
    wrong = []

    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=100, segment_bytes=1 << 20)
        log = await node.start()
        out_of_order(log)
        for number in range(400):  # as many producers as are written to a file at a stop
            append(log, batch_at(log.log_end_offset, producer_id=number, producer_epoch=0,
                base_sequence=0))  # fmt: skip
        await node.sync()
        await node.store.stop([log])
        world.crash("n1")
        node.env = world.restart("n1")
        log = await node.start()
        assert node.store.was_clean
        before = _asked(node)
        assert before == (LATE, 2), before
        await node.store.checkpoint()
        log = await node.restart("kill")
        if _asked(node) != (LATE, 2):
            wrong.append(_asked(node))

    for seed in range(30):
        run(scenario, seed)
    assert not wrong, wrong


def test_nor_does_power_lost_while_it_is_written() -> None:
    wrong = []

    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=1, segment_bytes=1 << 20)
        log = await node.start()
        out_of_order(log)
        for number in range(600):
            append(log, batch_at(log.log_end_offset, producer_id=number, producer_epoch=0,
                base_sequence=0))  # fmt: skip
        snapshots.write(log)  # as a checkpoint does every 64 MB
        await node.settle()
        await node.settle()
        log = await node.restart("crash")
        assert _asked(node) == (LATE, 2)
        await node.settle()
        log = await node.restart("kill")
        if _asked(node) != (LATE, 2):
            wrong.append(_asked(node))

    for seed in range(30):
        run(scenario, seed)
    assert not wrong, wrong


def test_nor_does_a_cut_behind_such_a_stop() -> None:
    wrong = []

    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=100, segment_bytes=1 << 20)
        log = await node.start()
        out_of_order(log)
        for _ in range(20):
            append(log, batch_at(log.log_end_offset))
        await node.sync()
        await node.store.stop([log])
        world.crash("n1")
        node.env = world.restart("n1")
        log = await node.start()
        assert node.store.was_clean
        log.truncate_to(22)  # a follower, of a history that has parted
        if _asked(node) != (LATE, 2):
            wrong.append(_asked(node))

    for seed in range(30):
        run(scenario, seed)
    assert not wrong, wrong
