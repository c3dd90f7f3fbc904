"""What is counted anew of timestamps, at a start and at a cut: it meets no damage elsewhere, and costs no walk through the file."""

from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import snapshots, walk
from log_helpers import LOG, START_MS, Node, produce, run


def rot(node: Node, log: Any, offset: int) -> None:
    size = log.active.size // log.log_end_offset
    file = node.world.node("n1").disk.open(node.path(LOG))
    file.write_at(offset * size + 16, b"\x07")
    file.sync()
    file.close()


def test_a_start_after_a_kill_meets_no_damage_that_is_elsewhere() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=100, segment_bytes=1 << 20)
        log = await node.start()
        produce(log, 1200)
        snapshots.write(log)
        await node.settle()
        await node.settle()
        rot(node, log, 50)
        log = await node.restart("kill")
        assert log.log_end_offset == 1200

    run(scenario)


def test_a_cut_meets_no_damage_that_is_elsewhere() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=100, segment_bytes=1 << 20)
        log = await node.start()
        produce(log, 25)
        snapshots.write(log)
        produce(log, 5)
        await node.settle()
        rot(node, log, 10)
        log.truncate_to(30 - 1)
        assert log.failed is None
        assert log.log_end_offset == 29

    run(scenario)


def _counting(read: list[int]) -> Any:
    usual = walk.read_range

    def counted(file: Any, position: int, length: int, *, block: bool) -> bytes:
        read.append(length)
        return usual(file, position, length, block=block)

    walk.read_range = counted
    return usual


@pytest.mark.parametrize(
    ("how", "step"),
    [
        ("kill", 1),
        ("cut", 0),
        ("cut", 1),
        ("cut into a sealed one", 0),
        ("cut into a sealed one", 1),
    ],
)
def test_times_cost_no_walk_through_a_large_file(how: str, step: int) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 30, index_interval_bytes=4096)
        log = await node.start()
        for number in range(1200):
            produce(log, 1, size=8 * 1024, timestamp=START_MS + number * step)
        snapshots.write(log)
        for number in range(1200, 1220):
            produce(log, 1, size=20, timestamp=START_MS + number * step)
        if how == "cut into a sealed one":
            log.roll(START_MS)
            produce(log, 1, timestamp=START_MS + 1220 * step)
        await node.settle()
        await node.settle()
        if how == "kill":
            node.down("kill")
            node.env = world.restart("n1")
        read: list[int] = []
        usual = _counting(read)
        try:
            if how == "kill":
                log = await node.start()
            else:
                log.truncate_to(1219)
        finally:
            walk.read_range = usual
        assert sum(read) < 2_000_000, sum(read)

    run(scenario)
