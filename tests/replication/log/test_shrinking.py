"""Large files that go piece by piece."""

import itertools

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import shrinking
from log_helpers import FOLDER, PARTITION, START_MS, Node, produce, run

PIECE = 1000
LARGE = 4 * PIECE  # at least, of a segment


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "PIECE_BYTES", PIECE)


async def started(world: World) -> Node:
    """Its first segment is a large one, and one follows."""
    node = Node(world, retention_ms=0, segment_bytes=2 * LARGE)
    log = await node.start()
    while log.segments[0].size < LARGE:
        produce(log, 2)
    log.roll(START_MS)
    produce(log, 2)
    await node.settle()
    return node


def large(node: Node) -> dict[str, int]:
    disk = node.env.disk
    folders = [f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.startswith(str(PARTITION))]
    paths = [f"{folder}/{name}" for folder in folders for name in disk.list(folder)]
    return {path: disk.size(path) for path in paths if f"{0:020d}.log" in path}


async def sizes(node: Node) -> list[int]:
    """As they go down to nothing."""
    found = [*large(node).values()]
    while found[-1]:
        await node.env.clock.sleep(shrinking.PAUSE_S / 10)
        size = next(iter(large(node).values()), 0)
        if size != found[-1]:
            found.append(size)
    return found


@pytest.mark.parametrize("how", ["retention", "deletion"])
def test_a_large_file_goes_in_pieces_with_pauses(how: str) -> None:
    async def scenario(world: World) -> None:
        node = await started(world)
        if how == "retention":
            assert node.log.apply_retention(START_MS + 99_999, node.log.log_end_offset)
            await node.settle()
        else:
            node.store.delete([node.log])
        began_s = node.env.clock.steady()
        found = await sizes(node)
        assert found[0] >= LARGE
        steps = [one - other for one, other in itertools.pairwise(found)]
        assert max(steps) <= PIECE
        assert node.env.clock.steady() - began_s >= 1.0 + (len(steps) - 1) * shrinking.PAUSE_S

    run(scenario)


def test_a_file_that_is_read_stays_whole() -> None:
    async def scenario(world: World) -> None:
        node = await started(world)
        segment = node.log.segments[0]
        file = segment.file()
        whole = file.read(0, segment.size)
        node.store.delete([node.log])
        await node.env.clock.sleep(10)
        assert large(node) == {}
        assert file.read(0, len(whole)) == whole

    run(scenario)


def test_a_stop_does_not_wait_for_the_pauses() -> None:
    async def scenario(world: World) -> None:
        node = await started(world)
        assert node.log.apply_retention(START_MS + 99_999, node.log.log_end_offset)
        await node.settle()
        await node.env.clock.sleep(1.0)
        began_s = node.env.clock.steady()
        await node.restart("clean")
        assert node.env.clock.steady() - began_s < shrinking.PAUSE_S
        assert large(node) == {}

    run(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_what_was_cut_does_not_come_back_with_a_crash(seed: int) -> None:
    async def scenario(world: World) -> None:
        node = await started(world)
        assert node.log.apply_retention(START_MS + 99_999, node.log.log_end_offset)
        await node.settle()
        (whole,) = large(node).values()
        await node.env.clock.sleep(1.0 + 2 * shrinking.PAUSE_S)
        assert 0 < min(large(node).values(), default=0) < whole
        world.crash("n1")
        node.env = world.restart("n1")
        kept = {path: size for path, size in large(node).items() if path.endswith(".log")}
        assert all(size == whole for size in kept.values())

    run(scenario, seed)
