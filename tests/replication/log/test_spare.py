"""A full disk from which segments were deleted that no snapshot of producers stands for: they go, and nobody is forgotten."""

import errno

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.replication.log import snapshots, spare
from fencepost.replication.log.log import Log
from log_helpers import FOLDER, START_MS, Node, produce, run
from test_killed_starts import commit
from test_producers_outlive import MANY, delete_before, first, log_files

SPARE = f"{FOLDER}/{spare.FILE_NAME}"
# For a batch or two, and for what a checkpoint appends; not for a snapshot.
LEFT_BYTES = 400
OTHERS = range(2, 10)
SEALED = 9  # where the second segment ends
STEPS_MAX = 120


async def full_and_deleted(node: Node) -> Log:
    """1 wrote a segment, the others the next, and both are deleted. The disk was full when that was sealed: the snapshot before it is
    the last one."""
    log = await node.start()
    first(log, 1)
    log.roll(START_MS)
    first(log, *OTHERS)
    await node.settle()
    files = node.env.disk.machine.files
    files.capacity = files.used + LEFT_BYTES
    log.roll(START_MS)
    assert log.snapshots == [1]
    produce(log, 2)
    commit(node, log)
    await node.sync()
    delete_before(log, log.log_end_offset - 1)
    assert [segment.base_offset for segment in log.doomed] == [0, 1]
    return log


def lose_spare(node: Node) -> None:
    """Others have filled its place."""
    node.env.disk.remove(SPARE)
    node.env.disk.machine.files.capacity -= spare.BYTES_MIN
    node.store.spare._there.clear()


def knows_all(log: Log) -> bool:
    return all(log.producers.knows(each) for each in (1, *OTHERS))


async def checkpoints(node: Node, count: int = 6) -> None:
    for _ in range(count):
        try:
            await node.settle()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        await node.env.clock.sleep(1)


def test_a_full_disk_is_emptied_though_nothing_stands_for_what_was_deleted() -> None:
    """The snapshot that the seal had no room for stands below the high watermark, and one that is made now never may."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await full_and_deleted(node)
        await checkpoints(node)
        assert log_files(node) == log.bases == [SEALED]
        assert not node.env.disk.exists(SPARE)
        for how in ("kill", "crash"):
            log = await node.restart(how)
            assert knows_all(log)

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_nobody_is_forgotten_though_the_disk_is_full(how: str) -> None:
    """A seed of the simulator: without a spare all went that was deleted, and a retry was written behind what came after it."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await full_and_deleted(node)
        lose_spare(node)
        await checkpoints(node)
        assert log_files(node) == [1, SEALED]
        node.env.disk.machine.files.capacity = None
        log = await node.restart(how)
        assert knows_all(log)
        log.committed = log.log_end_offset
        delete_before(log, log.log_end_offset - 1)
        await checkpoints(node)
        assert log_files(node) == log.bases == [SEALED]
        log = await node.restart("crash")
        assert knows_all(log)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("has_spare", [True, False])
@pytest.mark.parametrize(("how", "seeds"), [("kill", 1), ("crash", 4)])
def test_whenever_the_node_ends_meanwhile_nobody_is_forgotten(
    how: str, seeds: int, has_spare: bool
) -> None:
    async def scenario(world: World) -> None:
        for step in range(1, STEPS_MAX):
            name = f"n{step}"
            node = Node(world)
            node.env = world.node(name)
            await full_and_deleted(node)
            if not has_spare:
                lose_spare(node)
            world.crash_at_disk_op(name, step, kill=how == "kill")
            try:
                await world.on(node.env, checkpoints(node))
            except NodeLost:
                world.disk(name).files.capacity = None
                node.env = world.restart(name)
                log = await node.start()
                assert knows_all(log), step
                world.crash(name)
            else:
                assert step > 10
                return
        pytest.fail("never done")

    for seed in range(seeds):
        run(scenario, seed)


def test_a_spare_is_as_large_as_the_largest_snapshot_may_become() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await node.start()
        produce(log)
        await node.settle()
        assert not node.env.disk.exists(SPARE), "nobody needs one"
        first(log, 1)
        await node.settle()
        assert node.env.disk.size(SPARE) == spare.BYTES_MIN
        first(log, *range(2, MANY))
        await node.settle()
        assert node.env.disk.size(SPARE) >= snapshots.most_bytes(MANY)

    run(scenario)


def test_a_spare_for_which_there_is_no_room_to_grow_stays_what_it_is() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await node.start()
        first(log, 1)
        await node.settle()
        files = world.disk("n1").files
        files.capacity = files.used + (1 << 20)
        first(log, *range(2, MANY))
        await node.settle()
        assert node.env.disk.size(SPARE) == spare.BYTES_MIN == sum(node.store.spare._there)

    run(scenario)


def test_a_spare_is_never_what_fills_the_disk_and_is_kept_when_there_is_room() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        files = world.disk("n1").files
        files.capacity = files.used + spare.FREE_BYTES_MIN
        log = await node.start()
        first(log, 1)
        await node.settle()
        assert not node.env.disk.exists(SPARE)
        files.capacity = None
        log.roll(START_MS)
        await node.settle()
        assert node.env.disk.size(SPARE) == spare.BYTES_MIN

    run(scenario)


@pytest.mark.parametrize("what", ["write_at", "truncate", "rename"])
def test_a_spare_that_can_not_be_written_costs_the_snapshot(what: str) -> None:
    """What it left is not taken for one: it is room, if it had been cut, and the next snapshot that finds some has another spare made."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await full_and_deleted(node)
        world.disk("n1").faults.fail(what, path=f"*{spare.FILE_NAME}", number=errno.EIO)
        await checkpoints(node)
        assert log_files(node) == ([SEALED] if what == "rename" else [1, SEALED])
        world.disk("n1").files.capacity = None
        log.roll(START_MS)
        await checkpoints(node)
        assert log_files(node) == [SEALED]
        assert node.env.disk.size(SPARE) == spare.BYTES_MIN
        log = await node.restart("kill")
        assert knows_all(log)

    run(scenario)
