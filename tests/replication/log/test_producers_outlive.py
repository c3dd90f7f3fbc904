"""Whoever wrote is known at the next start, though all that he wrote is deleted: or a retry of his is written a second time."""

import asyncio
import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import snapshots
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.log import Log
from log_helpers import PARTITION, START_MS, Node, produce, run

MANY = snapshots.AT_ONCE_MAX + 100  # producers: their snapshots are written off the loop


def first(log: Log, *producer_ids: int) -> None:
    for producer_id in producer_ids:
        produce(log, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def delete_before(log: Log, offset: int) -> None:
    log.delete_records_before(offset)
    log.apply_retention(START_MS, log.log_end_offset)


async def many_producers(node: Node) -> Log:
    log = await node.start()
    first(log, *range(MANY))
    await node.settle()
    return log


async def two_who_are_deleted(node: Node) -> Log:
    """9 and 1 wrote what is out of the log now; nothing has been settled since."""
    log = await node.start()
    first(log, 9)
    await node.settle()
    log.roll(START_MS)
    first(log, 1)
    log.roll(START_MS)
    produce(log)
    log.roll(START_MS)
    produce(log)
    delete_before(log, 3)
    return log


def log_files(node: Node) -> list[int]:
    return [int(name[:20]) for name in node.files() if name.endswith(".log")]


# --- what a cut needs ---


async def _written_by_one(node: Node, rolls: int = 4) -> Log:
    """1, in a segment that was deleted. The high watermark is just behind it."""
    log = await node.start()
    first(log, 1)
    log.roll(START_MS)
    log.committed = 1
    node.store.offsets.put(Kind.HIGH_WATERMARK, PARTITION, 1)
    for _ in range(rolls):
        produce(log, 2)
        log.roll(START_MS)
    produce(log, 2)
    await node.settle()
    await node.settle()
    delete_before(log, 1)
    await node.settle()
    return log


@pytest.mark.parametrize("how", ["kill", "crash", "clean"])
def test_a_start_drops_no_snapshot_that_a_cut_to_the_high_watermark_needs(how: str) -> None:
    """Until the watermark moved nobody had told the log of it: its first checkpoint went by none."""

    async def scenario(world: World) -> None:
        node = Node(world)
        await _written_by_one(node)
        log = await node.restart(how)
        assert log.committed == 1
        await node.settle()
        log.truncate_to(1)
        assert log.producers.knows(1)

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_cut_to_where_a_snapshot_is_leaves_an_older_one_to_believe(how: str) -> None:
    """The recovery point is one below the cut, so that snapshot is not believed, and the older ones had been dropped."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        first(log, 1)
        log.roll(START_MS)
        produce(log)
        log.roll(START_MS)
        produce(log, 3)
        log.committed = 5
        node.store.offsets.put(Kind.HIGH_WATERMARK, PARTITION, 5)
        log.roll(START_MS)
        for _ in range(3):
            produce(log, 2)
            log.roll(START_MS)
        produce(log)
        await node.settle()
        await node.settle()
        delete_before(log, 2)
        await node.settle()
        await node.settle()
        assert 5 in log.snapshots
        log.truncate_to(5)
        log = await node.restart(how)
        assert log.producers.knows(1)

    for seed in range(10):
        run(scenario, seed)


@pytest.mark.parametrize("given_up_by", ["a cut", "a crash"])
def test_a_high_watermark_is_not_that_of_what_was_given_up(given_up_by: str) -> None:
    """A start would drop the snapshots that the next cut needs, for it was behind the end of what came instead."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 4)
        await node.sync()
        produce(log, 4)
        node.store.offsets.put(Kind.HIGH_WATERMARK, PARTITION, 8)
        await node.store.offsets.flush()
        if given_up_by == "a cut":
            log.truncate_to(4)
        else:
            log = await node.restart("crash")
        end = log.log_end_offset
        produce(log, 9, leader_epoch=1)
        await node.sync()
        log = await node.restart("kill")
        assert (log.log_end_offset, log.committed) == (end + 9, end)

    for seed in range(10):
        run(scenario, seed)


def test_a_cut_while_no_snapshot_stands_for_what_was_deleted_reads_that_again() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        path = "*.producers"
        world.disk("n1").faults.fail("append", path=path, number=errno.EIO, times=99)
        first(log, 1)
        log.roll(START_MS)
        produce(log, 3)
        await node.settle()
        delete_before(log, 2)
        await node.settle()
        log.truncate_to(2)
        assert log.producers.knows(1)

    run(scenario)


def test_a_snapshot_that_a_killed_process_did_not_sync_stands_for_nothing_yet() -> None:
    """It was in the page cache only: the next start believed it, and removed what it was to stand for. Then the power went."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        first(log, 1)
        await node.settle()
        world.disk("n1").faults.fail("create", path="*.producers", number=errno.EIO)
        # Its snapshot comes late: the checkpoint says already that all is settled there.
        log.roll(START_MS)
        snapshots.write(log)
        produce(log, 2)
        await node.sync()
        log = await node.restart("kill")
        assert log.snapshots == [1]
        log.committed = 3
        delete_before(log, 1)
        await node.settle()
        log = await node.restart("crash")
        assert log.producers.knows(1)

    for seed in range(20):
        run(scenario, seed)


# --- a stop ---


@pytest.mark.parametrize("rolls", [1, 2])
def test_a_stop_while_a_large_snapshot_is_written_forgets_nobody(rolls: int) -> None:
    """It wrote down where the log starts all the same, and the start removed what alone told who had written."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await many_producers(node)
        faults = world.disk("n1").faults
        usual, faults.run_s = faults.run_s, (3, 3)
        log.roll(START_MS)
        await asyncio.sleep(0)
        faults.run_s = usual
        for _ in range(rolls):
            produce(log)
            log.roll(START_MS)
        produce(log)
        await node.sync()
        log.committed = log.log_end_offset
        delete_before(log, log.log_end_offset - 1)
        log = await node.restart("clean")
        assert node.store.was_clean
        assert len(log.producers) >= MANY
        assert not [name for name in node.files() if name.endswith(".tmp")]

    run(scenario)


@pytest.mark.parametrize("path", ["*.producers", "*.index", "*leader-epoch*"])
def test_a_stop_that_could_not_settle_a_log_does_not_say_where_it_starts(path: str) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await two_who_are_deleted(node)
        world.disk("n1").faults.fail("sync", path=path, number=errno.EIO)
        log = await node.restart("clean")
        assert log.producers.knows(1) and log.producers.knows(9)

    run(scenario)


def test_a_log_that_failed_keeps_what_tells_who_has_written() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await two_who_are_deleted(node)
        world.disk("n1").faults.fail("sync", path="*.log", number=errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            await node.settle()
        await node.store.checkpoint()
        await asyncio.sleep(2)
        log = await node.restart("kill")
        assert log.producers.knows(1) and log.producers.knows(9)

    run(scenario)


# --- a snapshot that is late, or never comes ---


async def rounds(node: Node, count: int) -> None:
    for _ in range(count):
        await node.settle()
        await asyncio.sleep(0.25)


def test_a_disk_without_room_for_a_large_snapshot_gets_room_by_what_was_deleted() -> None:
    """Each checkpoint began another one before it looked whether one was being written: no start was told, no segment went."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await many_producers(node)
        files = world.disk("n1").files
        files.capacity = files.used + 20_000  # a snapshot takes more
        log.roll(START_MS)
        produce(log, 2)
        await node.sync()
        await asyncio.sleep(1)
        log.committed = log.log_end_offset
        delete_before(log, log.log_end_offset - 1)
        await rounds(node, 4)
        assert log.is_start_durable
        await rounds(node, 20)
        assert log_files(node) == log.bases
        assert log.snapshots
        assert not [name for name in node.files() if name.endswith(".tmp")]
        log = await node.restart("kill")
        assert len(log.producers) >= MANY

    run(scenario)


@pytest.mark.parametrize("what", ["append", "sync"])
@pytest.mark.parametrize("many", [False, True])
def test_deleted_segments_stay_until_a_snapshot_can_be_written_but_are_deleted_for_all(
    what: str, many: bool
) -> None:
    """DeleteRecords is answered, a crash in between forgets nobody, and they go when the disk does what it should again."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await node.start()
        first(log, *range(MANY if many else 3))
        await node.settle()
        faults = world.disk("n1").faults
        faults.fail(what, path="*.producers*", number=errno.EIO, times=10_000)
        log.roll(START_MS)
        produce(log, 2)
        await node.settle()
        await asyncio.sleep(1)
        start = log.log_end_offset - 1
        log.committed = log.log_end_offset
        delete_before(log, start)
        await rounds(node, 4)
        assert log.is_start_durable
        was = len(log.producers)
        log = await node.restart("kill")
        assert (log.log_start_offset, len(log.producers)) == (start, was)
        log.committed = log.log_end_offset
        produce(log)
        delete_before(log, start)
        world.disk("n1").faults.planned.clear()
        await rounds(node, 9)
        produce(log)
        log.committed = log.log_end_offset
        await rounds(node, 9)
        assert log_files(node) == log.bases
        log = await node.restart("crash")
        assert len(log.producers) == was

    run(scenario)


def test_a_busy_log_that_rolls_during_each_snapshot_removes_what_was_deleted() -> None:
    """Each checkpoint found one being written, and told no start for as long as that went on."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await many_producers(node)
        real = snapshots._write_behind

        async def slow(*of: object) -> None:
            await asyncio.sleep(0.5)
            await real(*of)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshots, "_write_behind", slow)
            for _ in range(30):
                produce(log, 2)
                log.roll(START_MS)
                log.committed = log.log_end_offset
                delete_before(log, log.log_end_offset - 6)
                await node.settle()
                assert log.is_start_durable
                await asyncio.sleep(0.33)
            assert len(log_files(node)) < 10
            await asyncio.sleep(1)

    run(scenario)


def test_a_log_whose_next_file_can_not_be_made_keeps_the_last_one() -> None:
    """With no file left a start took it for one that was never written, and removed the snapshots."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400)
        log = await node.start()
        first(log, *range(4))
        await node.settle()
        faults = world.disk("n1").faults
        faults.fail("create", path="*.log", number=errno.ENOSPC, times=2)
        with pytest.raises(OSError, match="No space"):
            first(log, 4)
        log.committed = 4
        log.delete_records_before(4)
        with pytest.raises(OSError, match="No space"):
            log.apply_retention(START_MS, 4)
        for _ in range(2):
            await node.settle()
            await asyncio.sleep(2)
            assert log_files(node)
            log.apply_retention(START_MS, 4)
        assert log_files(node) == [4]
        log = await node.restart("kill")
        assert [pid for pid in range(5) if log.producers.knows(pid)] == [0, 1, 2, 3]

    run(scenario)
