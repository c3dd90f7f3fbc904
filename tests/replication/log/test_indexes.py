"""The sparse indexes: Kafka's bytes, and no damage to them is ever seen by a reader."""

import struct
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.wire.records import Record
from fencepost.replication.log.index import OffsetIndex, TimeIndex
from fencepost.replication.log.search import MAX_TIMESTAMP, Seek
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import START_MS, Node, append, batch_at, produce, read_all, read_bytes, run

INDEX, TIMEINDEX = "00000000000000000000.index", "00000000000000000000.timeindex"


def test_the_files_are_kafkas() -> None:
    """Last offset and position of each batch that starts more than the interval behind the one before."""

    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=150)
        log = await node.start()
        for at in range(8):  # 90 bytes each
            append(log, batch_at(at, timestamp=START_MS + at // 2))
        log.roll(START_MS)
        read = node.env.disk.read_all
        entries = list(struct.iter_unpack(">iI", read(node.path(INDEX))))
        assert entries == [(2, 180), (4, 360), (6, 540)]
        entries = list(struct.iter_unpack(">qi", read(node.path(TIMEINDEX))))
        assert entries == [(START_MS + 1, 2), (START_MS + 2, 4), (START_MS + 3, 6)]

    run(scenario)


@pytest.mark.slow
@given(
    st.sampled_from([INDEX, TIMEINDEX]),
    st.one_of(
        st.tuples(st.just("cut"), st.integers(0, 400)),
        st.tuples(st.just("remove")),
        st.tuples(st.just("flip"), st.integers(0, 10_000), st.integers(0, 7)),
        st.tuples(st.just("fill"), st.binary(max_size=60)),
        st.tuples(st.just("zeros"), st.integers(0, 200), st.integers(1, 100)),
    ),
)
@settings(max_examples=200)
def test_no_damage_to_an_index_changes_what_is_read(name: str, harm: tuple[Any, ...]) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=100, segment_bytes=3500)
        await node.start()
        for at in range(60):
            append(node.log, batch_at(at, timestamp=START_MS + (at * 7) % 50))
        before = _answers(node)
        await node.settle()
        node.down("crash", torn=False)
        _harm(world.node("n1").disk, node.path(name), harm)
        await node.restart("kill")
        assert len(node.log.segments) == 2
        assert _answers(node) == before
        again = await node.restart("clean")
        assert _answers(node) == before
        node.log.truncate_to(20)
        assert read_all(again)[-90:] == read_bytes(again, 19)

    run(scenario)


def _answers(node: Node) -> list[object]:
    log = node.log
    out: list[object] = [segment.largest_timestamp() for segment in log.segments]
    for offset in range(0, 60, 7):
        out.append(read_bytes(log, offset, 300))
        out.append(read_bytes(log, offset, 1000, limit=min(offset + 5, 60)))
    out += [log.search(Seek(START_MS + at), 60) for at in range(0, 51, 5)]
    return [*out, log.search(Seek(MAX_TIMESTAMP), log.log_end_offset)]


def _harm(disk: Any, path: str, harm: tuple[Any, ...]) -> None:
    data = bytearray(disk.read_all(path))
    match harm:
        case ("remove",):
            disk.remove(path)
            return
        case ("cut", size):
            del data[size:]
        case ("flip", at, bit):
            data[at % len(data)] ^= 1 << bit
        case ("fill", content):
            data[:] = content
        case ("zeros", at, count):
            at %= len(data)
            data[at : at + count] = bytes(len(data[at : at + count]))
    file = disk.open(path)
    file.truncate(0)
    file.append((bytes(data),))
    file.close()


@given(st.binary(max_size=200), st.integers(0, 1 << 31))
def test_any_bytes_are_an_index_or_not_but_never_an_error(data: bytes, size: int) -> None:
    index = OffsetIndex.parse(data)
    assert index is None or index.to_bytes() == data
    assert index is None or index.fits(size) == all(each < size for each in index.positions)
    times = TimeIndex.parse(data)
    assert times is None or times.to_bytes() == data


def test_entries_are_written_before_the_segment_is_full() -> None:
    """So that a start after a kill need not read the whole segment."""

    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=1, segment_bytes=1 << 20)
        await node.start()
        produce(node.log, 600)
        await node.settle()
        assert node.env.disk.size(node.path(INDEX)) > 500 * 8
        produce(node.log, 5)
        before = world.disk("n1").operations
        await node.restart("kill")
        rewritten = world.disk("n1").operations - before
        assert rewritten < 30, "more than the tail was gone through"
        assert read_bytes(node.log, 604)

    run(scenario)


@pytest.mark.parametrize("full", ["index", "time"])
def test_a_full_index_ends_the_segment(full: str) -> None:
    async def scenario(world: World) -> None:
        bytes_ = 5 * 8 if full == "index" else 5 * 12
        node = Node(world, index_interval_bytes=1, segment_index_bytes=bytes_)
        log = await node.start()
        for at in range(20):
            append(log, batch_at(at, timestamp=START_MS + (at if full == "time" else 0)))
        assert len(log.segments) > 1
        assert all(segment.load_indexes()[0].__len__() <= 8 for segment in log.segments)

    run(scenario)


def test_an_index_of_a_history_that_was_truncated_is_made_anew() -> None:
    """What it says of the last entry is no batch any more: a node that had been killed did not start."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=100_000, index_interval_bytes=256)
        log = await node.start()
        produce(log, 60)
        await node.settle()
        log = await node.restart("clean")  # writes the index of the active segment
        log.truncate_to(10)
        large = [Record(at, START_MS - 100, b"", bytes(200)) for at in range(40)]
        produce(log, 1, records=large)
        log.roll(START_MS)  # nothing new for the index: its file stays as it was
        await node.settle()
        before = read_all(log)
        log = await node.restart("kill")
        assert read_all(log) == before

    run(scenario)
