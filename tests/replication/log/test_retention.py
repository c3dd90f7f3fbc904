"""What goes at the old end, when, and that nothing else does."""

import asyncio

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.checkpoint import Kind
from log_helpers import FOLDER, PARTITION, START_MS, Node, produce, read_all, read_bytes, run


def fill(node: Node, segments: int, **fields: object) -> None:
    for number in range(segments):
        produce(node.log, 2, timestamp=START_MS + number * 1000, **fields)
        node.log.roll(START_MS)


def test_segments_go_when_their_youngest_record_is_too_old() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=5000)
        log = await node.start()
        fill(node, 4)
        assert log.apply_retention(START_MS + 5000, 8) == 0
        assert log.apply_retention(START_MS + 6001, 8) == 2
        assert (log.log_start_offset, log.bases) == (4, [4, 6, 8])
        assert log.size_bytes == len(read_all(log))

    run(scenario)


def test_the_active_segment_goes_too_and_the_offsets_go_on() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=5000)
        log = await node.start()
        produce(log, 3)
        assert log.apply_retention(START_MS + 10_000, 3) == 1
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
        for how in ("kill", "crash", "clean"):
            await node.settle()
            log = await node.restart(how)
            assert (log.log_start_offset, log.log_end_offset) == (3, 3)
        produce(log)
        assert log.log_end_offset == 4
        assert log.apply_retention(START_MS, 4) == 0

    run(scenario)


def test_segments_go_while_the_rest_is_still_as_large_as_retention_bytes() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_bytes=400, retention_ms=-1)
        log = await node.start()
        fill(node, 4)  # 180 bytes each
        assert log.apply_retention(START_MS, 8) == 1
        assert log.size_bytes == 540
        node.config.retention_bytes = 360
        assert log.apply_retention(START_MS, 8) == 1
        assert log.apply_retention(START_MS, 8) == 0
        assert log.log_start_offset == 4

    run(scenario)


def test_nothing_goes_that_the_high_watermark_has_not_passed() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        log = await node.start()
        fill(node, 3)
        assert log.apply_retention(START_MS + 99_999, 3) == 1
        assert log.log_start_offset == 2

    run(scenario)


def test_a_compacted_log_loses_only_what_delete_records_took() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0, retention_bytes=0, delete=False, compact=True)
        log = await node.start()
        fill(node, 3)
        assert log.apply_retention(START_MS + 99_999, 6) == 0
        log.delete_records_before(5)
        assert log.apply_retention(START_MS + 99_999, 6) == 2
        assert (log.log_start_offset, log.bases[0]) == (5, 4)
        assert log.read(4, 100, limit=6, min_one=True) is None

    run(scenario)


def test_records_that_were_deleted_stay_so_through_a_power_cut() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 5)
        await node.settle()
        log.delete_records_before(3)
        await node.store.checkpoint()
        log = await node.restart("crash")
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)
        assert node.store.offsets.get(Kind.LOG_START, PARTITION) == 3
        assert log.epochs.starts == [3]

    run(scenario)


def test_files_are_renamed_at_once_removed_later_and_readable_for_who_has_them() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        log = await node.start()
        fill(node, 2)
        held = log.read(0, 1000, limit=4, min_one=True)
        data = read_bytes(log, 0)
        assert held is not None
        log.apply_retention(START_MS + 99_999, 4)
        await node.settle()
        first = "00000000000000000000.log"
        assert first not in node.files() and first + ".deleted" in node.files()
        await node.env.clock.sleep(1.1)  # file.delete.delay.ms
        assert not [name for name in node.files() if name.endswith(".deleted")]
        piece = held.slices[0]
        assert piece.file.read(piece.position, piece.length) == data[: piece.length]  # type: ignore[union-attr]

    run(scenario)


def test_a_crash_while_segments_are_deleted_leaves_no_hole() -> None:
    async def scenario(world: World) -> None:
        for step in range(1, 60):
            name = f"n{step}"
            node = Node(world, retention_ms=0)
            node.env = world.node(name)
            log = await node.start()
            fill(node, 5)
            await node.settle()
            data = read_all(log)
            world.crash_at_disk_op(name, step)
            try:
                await world.on(node.env, _retain(node))
            except NodeLost:
                node.env = world.restart(name)
                log = await node.start()
                assert log.log_end_offset == 10
                assert read_all(log) == data[log.log_start_offset * 90 :]
                assert log.log_start_offset in (0, 8)
                world.crash(name)
            else:
                return
        pytest.fail("never done")

    run(scenario)


async def _retain(node: Node) -> None:
    assert node.log.apply_retention(START_MS + 99_999, 8) == 4
    await node.settle()
    await node.env.clock.sleep(2)


def test_what_was_being_removed_is_gone_after_a_restart() -> None:
    async def scenario(world: World) -> None:
        for how in ("kill", "clean"):
            node = Node(world, retention_ms=0)
            log = await node.start()
            fill(node, 2)
            await node.settle()
            log.apply_retention(START_MS + 99_999, log.log_end_offset)
            await node.settle()
            await node.restart(how)
            assert not [name for name in node.files() if name.endswith(".deleted")]
            await node.stop()
            node.world.restart("n1")

    run(scenario)


def test_a_partition_that_is_deleted_is_gone_for_good() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        piece = log.read(0, 1000, limit=3, min_one=True)
        assert piece is not None
        node.store.delete([log])
        assert node.store.folders() == []
        assert piece.slices[0].file.read(0, 10)  # type: ignore[union-attr]
        await node.env.clock.sleep(2)
        assert node.env.disk.list(FOLDER) == ["partition-offsets"]
        log = node.store.open(PARTITION, None, node.config)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        produce(log)

    run(scenario)


def test_a_checkpoint_that_had_begun_claims_nothing_of_a_partition_that_went_meanwhile() -> None:
    """A replica that was moved away and comes back would be taken for one whose log was lost. The other partition
    is what the checkpoint waits for the disk for."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        produce(log, 3)
        other = node.store.open(TopicPartition("other", 0), None, node.config)
        produce(other, 3)
        await node.store.sync([log, other])
        checkpoint = asyncio.create_task(node.store.checkpoint())
        await asyncio.sleep(0)
        node.store.delete([log])
        await checkpoint
        again = node.store.open(PARTITION, None, node.config)
        assert (again.log_start_offset, again.log_end_offset) == (0, 0)

    run(scenario)
