"""Who wrote what was deleted is told by snapshots alone, and a snapshot may rot: it is on the disk twice."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.log import Log
from fencepost.replication.log.snapshot_file import BLOCK, copies, twice
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import START_MS, Node, produce, run

MANY = 90  # producers: more than a block of them


@given(st.binary(min_size=1, max_size=3 * BLOCK), st.integers(0, 3 * BLOCK))
def test_both_copies_are_found_and_lie_in_blocks_of_their_own(snapshot: bytes, at: int) -> None:
    data = twice(snapshot)
    assert list(copies(data)) == [snapshot, snapshot, data]
    block = at // BLOCK * BLOCK
    lost = data[:block] + bytes(len(data[block : block + BLOCK])) + data[block + BLOCK :]
    assert snapshot in list(copies(lost))[:2]


@given(st.binary(max_size=3 * BLOCK))
def test_one_copy_of_an_older_build_is_one_of_them(snapshot: bytes) -> None:
    assert snapshot in copies(snapshot)


async def forgotten(node: Node, producers: int) -> tuple[Log, str]:
    """A log in which nothing is left of any producer, and the newest file that tells of them."""
    log = await node.start()
    for producer_id in range(producers):
        produce(log, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    log.roll(START_MS)
    produce(log)
    log.delete_records_before(log.log_end_offset - 1)
    log.apply_retention(START_MS, log.log_end_offset - 1)
    for _ in range(3):
        await node.settle()
        await node.env.clock.sleep(1)
    name = max(each for each in node.files() if each.endswith(".producers"))
    assert [each for each in node.files() if each.endswith(".log")] == [f"{producers:020d}.log"]
    return log, node.path(name)


@pytest.mark.parametrize("producers", [1, MANY])
@pytest.mark.parametrize("how", ["kill", "crash"])
def test_whichever_bit_flips_who_wrote_what_was_deleted_is_known(how: str, producers: int) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        _, path = await forgotten(node, producers)
        file = world.disk("n1").files.file(path)
        size = len(file.content)
        for at in sorted({0, 5, 9, size // 2 - 1, BLOCK - 1, BLOCK, BLOCK + 7, size - 1}):
            file.flip(min(at, size - 1), at % 8)
            log = await node.restart(how)
            assert all(log.producers.knows(each) for each in range(producers)), at
            file.flip(min(at, size - 1), at % 8)

    run(scenario)


def test_a_snapshot_that_is_damaged_twice_is_not_believed() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        _, path = await forgotten(node, 1)
        file = world.disk("n1").files.file(path)
        file.flip(20, 0)
        file.flip(BLOCK + 20, 1)
        log = await node.restart("kill")
        assert not log.producers.knows(0)
        assert not [each for each in node.files() if each.endswith(".producers")]

    run(scenario)


def test_where_there_is_no_room_for_two_there_is_one() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        world.disk("n1").faults.fail("append", path="*.producers*", number=errno.ENOSPC)
        _, path = await forgotten(node, 1)
        assert len(world.disk("n1").files.file(path).content) < BLOCK
        log = await node.restart("kill")
        assert log.producers.knows(0)

    run(scenario)
