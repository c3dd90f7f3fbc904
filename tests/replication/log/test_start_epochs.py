"""A list of epochs that a start finds: what speaks against it, and what does not."""

from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.divergence_machine import GoOn, answer
from fencepost.replication.log import snapshots, walk
from fencepost.replication.log.log import Log
from log_helpers import LOG, START_MS, Node, produce, run


async def start_behind_one_bit(node: Node, how: str) -> Log:
    """Of the first batch's epoch, which becomes 65,536 more; nothing else went."""
    node.down(how, torn=False)
    node.env = node.world.restart("n1")
    file = node.env.disk.open(node.path(LOG), create=False)
    data = bytearray(file.read(12, 4))
    data[1] ^= 1
    file.write_at(12, data)
    file.sync()
    file.close()
    return await node.start()


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_one_bit_of_the_first_batchs_epoch_does_not_take_a_sound_list(how: str) -> None:
    """The partition leader epoch is under no checksum; the list has one."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        for epoch in (1, 2, 3):
            produce(log, 3, leader_epoch=epoch)
        log.roll(START_MS)
        produce(log, 3, leader_epoch=4)
        await node.settle()
        await node.settle()
        sound = (log.epochs.epochs[:], log.epochs.starts[:])
        assert sound == ([1, 2, 3, 4], [0, 3, 6, 9])
        log = await start_behind_one_bit(node, how)
        assert (log.epochs.epochs, log.epochs.starts) == sound

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_sector_that_cant_be_read_at_the_log_start_keeps_no_log_from_opening(how: str) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        log.roll(START_MS)
        produce(log, 3)
        await node.settle()
        await node.settle()
        node.down(how, torn=False)
        node.env = world.restart("n1")
        world.disk("n1").faults.fail("read", path="*/" + LOG, times=1000)
        log = await node.start()
        assert log.log_end_offset == 6

    run(scenario)


def test_the_start_of_a_log_within_a_large_file_costs_no_walk_through_it() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 30, index_interval_bytes=4096)
        log = await node.start()
        for number in range(600):
            produce(log, 1, size=16 * 1024, timestamp=START_MS + number)
        await node.settle()
        log.committed = log.log_end_offset
        log.delete_records_before(598)
        snapshots.write(log)
        await node.settle()
        await node.settle()
        node.down("kill")
        node.env = world.restart("n1")
        read: list[int] = []
        usual = walk.read_range

        def counted(file: Any, position: int, length: int, *, block: bool) -> bytes:
            read.append(length)
            return usual(file, position, length, block=block)

        walk.read_range = counted
        try:
            log = await node.start()
        finally:
            walk.read_range = usual
        assert log.log_start_offset == 598
        assert sum(read) < 1_000_000, sum(read)

    run(scenario)


def test_what_a_leader_says_whose_first_batch_has_rotten_in_four_unchecked_bytes() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        for epoch in (1, 2, 3):
            produce(log, 3, leader_epoch=epoch)
        log.roll(START_MS)
        produce(log, 3, leader_epoch=4)
        await node.settle()
        await node.settle()
        node.down("kill")
        node.env = world.restart("n1")
        file = node.env.disk.open(node.path(LOG), create=False)
        file.write_at(12, bytes((file.read(12, 1)[0] | 1,)))
        file.sync()
        file.close()
        log = await node.start()
        # It leads in epoch 5; a follower in the ISR that has all the same asks where to go on.
        told = answer(log.epochs, (5, 12), 0, 12, last_epoch=4, end_offset=12, has_all=True)
        assert told == GoOn(), told

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_nor_does_one_where_the_second_batch_is_in_the_next_file(how: str) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 1, leader_epoch=1)
        log.roll(START_MS)
        for epoch in (2, 3, 4):
            produce(log, 3, leader_epoch=epoch)
        await node.settle()
        await node.settle()
        sound = (log.epochs.epochs[:], log.epochs.starts[:])
        log = await start_behind_one_bit(node, how)
        assert (log.epochs.epochs, log.epochs.starts) == sound

    run(scenario)
