"""Files that are out of the log: when they go, and that nobody waits for it."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import FOLDER, START_MS, Node, produce, put, read_all, run


def deleted(node: Node) -> list[str]:
    return [name for name in node.files() if name.endswith(".log.deleted")]


async def bury(node: Node, segments: int = 3) -> None:
    """Retention takes that many, and their time to go is in a second."""
    log = await node.start()
    for _ in range(segments):
        produce(log, 2)
        log.roll(START_MS)
    await node.settle()
    assert log.apply_retention(START_MS + 99_999, log.log_end_offset) == segments
    await node.settle()
    assert len(deleted(node)) == segments


def test_segments_are_removed_off_the_loop_one_after_another() -> None:
    """`Disk.run` takes half a second here; in place they would all be gone with the timer."""

    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await bury(node)
        world.disk("n1").faults.run_s = (0.5, 0.5)
        left = []
        for wait_s in (1.2, 0.5, 0.5, 0.5):
            await node.env.clock.sleep(wait_s)
            left.append(len(deleted(node)))
        assert left == [3, 2, 1, 0]
        assert node.log.burials == {}

    run(scenario)


def test_a_segment_stays_for_its_time_though_another_lay_in_its_grave() -> None:
    """Rounds of compaction bury one after another under the same name."""

    async def scenario(world: World) -> None:
        node = Node(world, compact=True, delete=False, file_delete_delay_ms=1_000)
        log = await node.start()
        for _ in range(2):
            for value in "xy":
                put(log, ("k", value))
                log.roll(START_MS)
            await node.settle()
            await log.compact(START_MS, log.log_end_offset, force=True)
            await node.env.clock.sleep(0.6)
        assert deleted(node)[0] == "00000000000000000000.log.deleted"
        await node.env.clock.sleep(0.3)
        assert deleted(node)[0] == "00000000000000000000.log.deleted"
        await node.env.clock.sleep(1.0)
        assert deleted(node) == []
        assert log.burials == {}

    run(scenario)


def test_a_segment_that_can_not_be_removed_does_not_keep_the_others() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await bury(node)
        world.disk("n1").faults.fail("remove", path="*02.log.deleted")
        await node.env.clock.sleep(2)
        assert deleted(node) == ["00000000000000000002.log.deleted"]
        node.log = await node.restart("kill")
        assert deleted(node) == []

    run(scenario)


def test_a_stop_or_a_kill_while_they_are_removed_leaves_none_for_the_next_start() -> None:
    async def scenario(world: World) -> None:
        for how in ("clean", "kill", "crash"):
            node = Node(world, retention_ms=0)
            node.env = world.restart("n1") if how != "clean" else node.env
            await bury(node)
            world.disk("n1").faults.run_s = (0.5, 0.5)
            await node.env.clock.sleep(1.2)
            assert len(deleted(node)) == 3
            await node.restart(how)
            assert deleted(node) == []
            world.heal()
            world.kill("n1")

    run(scenario)


def test_what_a_deleted_partition_had_buried_goes_with_its_folder() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await bury(node)
        node.store.delete([node.log])
        (grave,) = [name for name in node.env.disk.list(FOLDER) if name.endswith("-delete")]
        names = node.env.disk.list(f"{FOLDER}/{grave}")
        assert len([name for name in names if name.endswith(".log.deleted")]) == 3
        await node.env.clock.sleep(2)
        assert node.env.disk.list(FOLDER) == ["partition-offsets"]

    run(scenario)


@pytest.mark.parametrize(
    "what", ["could not be renamed", "a checkpoint is to bury", "a power cut brought back"]
)
@pytest.mark.parametrize("start", [1, 2])
def test_what_retention_took_is_not_in_a_log_that_begins_anew_before_it(
    what: str, start: int
) -> None:
    """Its leader begins further back: what bears the name of a segment there would count again."""

    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        log = await node.start()
        for _ in range(3):
            produce(log, 2)
            log.roll(START_MS)
        await node.settle()
        assert log.apply_retention(START_MS + 99_999, log.log_end_offset) == 3
        faults = world.disk("n1").faults
        if what == "could not be renamed":
            faults.fail("rename", path="*.log", times=3)
            await node.settle()
            assert "00000000000000000002.log" in node.files()
        elif what == "a power cut brought back":
            await node.settle()
            await node.stop()
            log = await node.restart("crash")
            assert node.store.was_clean
        else:
            faults.run_s = (0.5, 0.5)
            checkpoint = world.loop.create_task(node.store.checkpoint())
            await node.env.clock.sleep(0.2)
        log.truncate_fully_and_start_at(start)
        produce(log, 1, leader_epoch=4)
        if what == "a checkpoint is to bury":
            await checkpoint
            faults.heal()
        produce(log, 2, leader_epoch=4)
        await node.sync()
        before = read_all(log)
        for how in ("kill", "crash"):
            log = await node.restart(how)
            assert (log.log_start_offset, log.log_end_offset) == (start, start + 3)
            assert read_all(log) == before

    for seed in range(10):
        run(scenario, seed)


def test_a_full_disk_does_not_take_the_file_of_a_log_that_began_where_a_deleted_segment_did() -> (
    None
):
    """The checkpoint that was under way gave the old segment back: the next one that found no room renamed the file of the new."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        log.roll(START_MS)
        produce(log, 3)
        await node.settle()
        log.delete_records_before(3)
        log.apply_retention(START_MS, 6)
        faults = world.disk("n1").faults
        faults.run_s = (0.01, 0.01)
        under_way = world.loop.create_task(node.store.checkpoint())
        await node.env.clock.sleep(0)
        log.truncate_fully_and_start_at(0)
        produce(log, 5, leader_epoch=1)
        await node.sync()
        await under_way
        assert not log.doomed
        produce(log, leader_epoch=1)
        await node.sync()
        faults.fail("append", path="*partition-offsets", number=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            await node.store.checkpoint()
        await node.env.clock.sleep(5)
        before = read_all(log)
        log = await node.restart("kill")
        assert (log.log_end_offset, read_all(log)) == (6, before)

    run(scenario)
