"""The sync of a log's folder fails in work beside its writes; the group's next one passes, and proves nothing of the names (fsyncgate)."""

import asyncio

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import shrinking
from log_helpers import START_MS, Node, produce, put, run


def folder_of(node: Node) -> str:
    return node.path("").rstrip("/")


async def a_name_is_new(node: Node) -> int:
    """What is written now is in a file whose name waits to be synced; up to where the log was durable before."""
    await node.settle()
    node.log.roll(START_MS)
    before = node.log.recovery_point
    put(node.log, ("new", "1"))
    return before


@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5])
def test_no_name_is_believed_whose_sync_failed_in_a_round_of_compaction(failing: int) -> None:
    """1. A batch is in a new file   2. a round's sync of the folder fails   3. the group's passes, and the batch is acknowledged
    4. the power goes, and with it the file.
    """

    async def scenario(world: World) -> None:
        node = Node(world, compact=True, delete=False)
        log = await node.start()
        for number in range(4):
            put(log, ("k", f"{number}"))
        log.roll(START_MS)
        put(log, ("k", "last"))
        before = await a_name_is_new(node)
        disk, count = node.env.disk, 0
        attempt = disk.attempt

        def counted(kind: str, path: str, **fields: object) -> None:
            nonlocal count
            if kind == "sync_folder":
                count += 1
                if count == failing:
                    world.disk("n1").faults.fail("sync_folder", path=folder_of(node))
            attempt(kind, path, **fields)

        disk.attempt = counted  # type: ignore[method-assign]
        with pytest.raises(OSError):
            await log.compact(START_MS, log.log_end_offset, force=True)
        disk.attempt = attempt  # type: ignore[method-assign]
        await node.sync()
        assert log.recovery_point == before, "the batch would be acknowledged"
        assert log.names_lost

    run(scenario)


LARGE = 50  # records: some pages


def test_no_name_is_believed_whose_sync_failed_while_a_large_segment_was_buried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shrinking, "PIECE_BYTES", 100)  # or one page, where the disk has pages

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, LARGE)
        log.roll(START_MS)
        produce(log)
        log.committed = log.log_end_offset
        log.delete_records_before(LARGE)
        log.apply_retention(START_MS, log.log_end_offset)
        log.roll(START_MS)
        await node.settle()
        await node.settle()
        assert log.burials
        before = await a_name_is_new(node)
        world.disk("n1").faults.fail("sync_folder", path=folder_of(node))
        await asyncio.sleep(2)
        assert not world.disk("n1").faults.planned
        await node.sync()
        assert log.recovery_point == before, "the batch would be acknowledged"

    run(scenario)
