"""A disk that was full, and has room again while nobody writes."""

import asyncio
import errno

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.disk_room import FILE_NAME, LOOK_S, ROOM_BYTES_MIN, TRIED
from replica_helpers import FOLDER, Metadata, Node, batch, play, topic_of

PROBE = f"{FOLDER}/{FILE_NAME}"


def fill_up(node: Node, spare: int = 0) -> None:
    files = node.env.machine.disk.files
    files.capacity = files.used + spare
    refused = node.produce(batch("x" * (spare + 1)))
    assert refused.error is ErrorCode.kafka_storage_error  # type: ignore[union-attr]
    assert node.manager.is_disk_full


async def some_looks() -> None:
    await asyncio.sleep(3 * LOOK_S)


def told(node: Node) -> list[str]:
    return [name for _, name, _ in node.env.machine.events if name.startswith("disk_")]


def test_a_disk_with_room_again_is_told_when_nobody_writes() -> None:
    async def scene(node: Node) -> None:
        fill_up(node)
        await some_looks()
        assert node.manager.is_disk_full
        node.env.machine.disk.files.capacity = None
        await some_looks()
        assert not node.manager.is_disk_full
        assert told(node) == ["disk_full", "disk_has_space_again"]
        assert not node.env.disk.exists(PROBE)
        written = node.env.machine.disk.operations
        await some_looks()  # now there is nothing to look for
        assert node.env.machine.disk.operations == written

    play(scene)


@pytest.mark.parametrize("spare", [len(TRIED) - 1, len(TRIED), ROOM_BYTES_MIN - 100])
def test_room_for_less_than_a_batch_is_not_told_as_room_nor_taken(spare: int) -> None:
    async def scene(node: Node) -> None:
        fill_up(node, spare)
        await asyncio.sleep(LOOK_S / 2)  # the checkpoint
        operations = node.env.machine.disk.operations
        await some_looks()
        assert node.manager.is_disk_full
        assert node.env.machine.disk.operations == operations

    play(scene)


@pytest.mark.parametrize("kind", ["create", "append", "sync"])
def test_a_quota_that_free_bytes_do_not_show_is_seen(kind: str) -> None:
    async def scene(node: Node) -> None:
        faults = node.env.machine.disk.faults
        faults.fail("append", path="*.log", number=errno.EDQUOT)
        faults.fail(kind, path=PROBE, number=errno.EDQUOT, times=10_000)
        node.produce(batch("a"))
        await some_looks()
        assert node.manager.is_disk_full
        assert not node.env.disk.exists(PROBE)
        faults.planned.clear()
        await some_looks()
        assert not node.manager.is_disk_full

    play(scene)


def test_what_is_still_refused_is_believed_more_than_a_small_file() -> None:
    async def scene(node: Node) -> None:
        faults = node.env.machine.disk.faults
        faults.fail("append", path="*.log", number=errno.ENOSPC, times=10_000)
        for _ in range(20):
            node.produce(batch("a"))
            await asyncio.sleep(LOOK_S / 2)
            assert node.manager.is_disk_full
        assert told(node) == ["disk_full"]

    play(scene)


def test_a_write_that_is_refused_while_the_small_file_is_written_counts() -> None:
    async def scene(node: Node) -> None:
        faults = node.env.machine.disk.faults
        faults.run_s = (1.0, 1.0)
        faults.fail("append", path="*.log", number=errno.ENOSPC, times=2)
        node.produce(batch("a"))
        await asyncio.sleep(LOOK_S + 0.5)
        node.produce(batch("a"))
        await asyncio.sleep(1.0)
        assert node.manager.is_disk_full
        await some_looks()
        assert not node.manager.is_disk_full

    play(scene)


def test_a_file_that_may_not_grow_is_no_disk_that_a_small_file_finds_room_on() -> None:
    async def scene(node: Node) -> None:
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.EFBIG)
        node.produce(batch("a"))
        await some_looks()
        assert node.manager.is_disk_full
        await node.write(batch("a"))
        assert not node.manager.is_disk_full

    play(scene)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("operation", [1, 2, 3, 4])
def test_a_kill_leaves_no_file_behind_for_longer_than_until_the_next_start(
    operation: int, *, power: bool
) -> None:
    """Create, append, sync, remove: it dies with each of them."""
    with World(operation) as world:
        metadata = Metadata(topic_of("orders"))
        env = world.node("a")

        async def until_killed() -> None:
            fill_up(await Node(env, metadata).start())
            await some_looks()
            world.disk("a").files.capacity = None
            world.crash_at_disk_op("a", operation, kill=not power)
            await some_looks()

        with pytest.raises(NodeLost):
            world.run(world.on(env, until_killed()))
        if not power:
            assert (world.disk("a").files.find(PROBE) is not None) is (operation < 4)
        again = world.restart("a")

        async def started_again() -> None:
            node = await Node(again, metadata).start()
            await some_looks()
            assert not again.disk.exists(PROBE)
            assert await node.write(batch("a")) == 0

        world.run(world.on(again, started_again()))
