"""Open files and loaded indexes are few, whatever the number of segments."""

from typing import Any

from fencepost.chaos.sim.world import World
from fencepost.replication.log.pool import FilePool
from log_helpers import Node, produce, read_bytes, run


class Item:
    """The least of a segment."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.open_file: Any = None
        self.used = self.dirty = False
        self.forgotten = False

    def index_bytes(self) -> int:
        return 10

    def forget_index(self) -> None:
        self.forgotten = True


def items(count: int) -> list[Any]:
    return [Item(f"/data/{number}") for number in range(count)]


def test_the_least_recently_used_is_closed() -> None:
    async def scenario(world: World) -> None:
        pool = FilePool(world.node("n1").disk, open_max=3)
        some = items(5)
        for item in some[:3]:
            pool.open(item, create=True)
        some[0].used = some[1].used = some[2].used = False
        some[0].used = True
        pool.open(some[3], create=True)
        assert [item.open_file is not None for item in some] == [True, False, True, True, False]
        assert len(pool) == 3

    run(scenario)


def test_a_file_that_someone_holds_is_not_closed() -> None:
    async def scenario(world: World) -> None:
        pool = FilePool(world.node("n1").disk, open_max=2)
        some = items(4)
        held = pool.open(some[0], create=True)
        held.append((b"data",))
        for item in some[1:]:
            pool.open(item, create=True)
        assert some[0].open_file is held
        pool.close(some[0])
        assert some[0].open_file is None
        assert held.read(0, 4) == b"data"
        del held
        pool.close(some[3])
        pool.open(some[3])
        assert len(pool) <= 3

    run(scenario)


def test_a_file_with_unsynced_bytes_is_not_closed() -> None:
    async def scenario(world: World) -> None:
        pool = FilePool(world.node("n1").disk, open_max=2)
        some = items(6)
        for item in some:
            pool.open(item, create=True)
            item.dirty = item is some[0]
        assert some[0].open_file is not None

    run(scenario)


def test_indexes_that_take_too_much_are_forgotten_the_oldest_first() -> None:
    pool = FilePool(None, index_bytes_max=30)  # type: ignore[arg-type]
    some = items(5)
    for item in some:
        pool.index_loaded(item)
    assert [item.forgotten for item in some] == [True, True, False, False, False]
    pool.index_gone(some[2])
    pool.index_loaded(some[0])
    assert not some[3].forgotten


def test_a_log_of_many_segments_is_read_through_few_files() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=300)
        log = await node.start()
        pool = node.store.shared.pool
        pool.open_max, pool.index_bytes_max = 4, 2000
        for _ in range(30):
            produce(log, 3)
            await node.settle()
        slices = [log.read(offset, 100, limit=90, min_one=True) for offset in range(0, 90, 3)]
        assert len(log.segments) == 30
        for offset in range(90):
            assert len(read_bytes(log, offset, 90)) == 90
        for found in slices:  # what was handed out is readable, however long ago
            assert found is not None
            piece: Any = found.slices[0]
            assert len(piece.file.read(piece.position, piece.length)) == 90
        slices.clear()
        del found, piece
        produce(log, 6)
        assert len(pool) <= 6

    run(scenario)
