"""One bit of partition-offsets flips, in the middle: nothing that stands in it is relied on, nor what stood before that."""

from uuid import UUID

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.checkpoint import FRAME
from log_helpers import FOLDER, PARTITION, START_MS, Node, offsets_in, produce, read_all, run

NEW_ID = UUID(int=0x9999)


@pytest.mark.parametrize("written", [50, 150])
def test_numbers_of_a_topic_that_is_gone_are_not_those_of_the_next_one_of_its_name(
    written: int,
) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 100)
        log.roll(START_MS)
        await node.settle()
        log.delete_records_before(100)
        log.apply_retention(START_MS, 100)
        await node.settle()
        path = f"{FOLDER}/partition-offsets"
        size = node.env.disk.size(path)
        node.store.delete([log])
        node.log = log = node.store.open(PARTITION, NEW_ID, node.config)
        produce(log, written)
        await node.settle()
        assert node.env.disk.size(path) > size, "the file was made anew"
        before = offsets_in(read_all(log))
        assert before == list(range(written))
        node.down("kill")
        disk = world.node("n1").disk
        file = disk.open(path)
        at = size + FRAME.size + 3  # in the frame that says that the first topic is gone
        file.write_at(at, bytes([file.read(at, 1)[0] ^ 1]))
        file.close()
        node.env = world.restart("n1")
        store = node.store = type(node.store)(node.env, FOLDER)
        store.start()
        assert not store.offsets.intact
        log = node.log = store.open(PARTITION, NEW_ID, node.config)
        await store.opened([log])
        assert (log.log_start_offset, log.log_end_offset) == (0, written)
        assert offsets_in(read_all(log)) == before

    run(scenario)


def test_a_name_that_is_free_can_be_used_again() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 100)
        await node.settle()
        path = f"{FOLDER}/partition-offsets"
        size = node.env.disk.size(path)
        node.store.delete([log])
        await node.env.clock.sleep(5)
        node.store.offsets.put(3, PARTITION._replace(partition=7), 5)  # any frame behind
        await node.store.offsets.flush()
        assert node.env.disk.size(path) > size
        node.down("kill")
        disk = world.node("n1").disk
        file = disk.open(path)
        at = size + FRAME.size + 3
        file.write_at(at, bytes([file.read(at, 1)[0] ^ 1]))
        file.close()
        node.env = world.restart("n1")
        store = node.store = type(node.store)(node.env, FOLDER)
        store.start()
        assert not store.offsets.intact
        log = store.open(PARTITION, UUID(int=0x9999), node.config)
        await store.opened([log])

    run(scenario)
