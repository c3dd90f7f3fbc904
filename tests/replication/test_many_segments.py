"""A start after a kill knows of no sealed segment how young its youngest record is, nor what was aborted there. Who asks then has it
read off the loop, of however many segments: with files of 1 GiB that is up to 85 ms for each.
"""

import pytest
from fencepost.chaos.sim.disk import SimDisk
from fencepost.chaos.sim.world import World
from fencepost.replication.log.index import TimeIndex
from fencepost.replication.log.txn_index import AbortedIndex
from fencepost.replication.partition import Read
from replica_helpers import Metadata, Node, Restarts, batch, topic_of
from test_partition_waits import end

SEGMENTS = 40  # more than the pieces that one read has brought into memory before it blocks
DAY_MS = 86_400_000


@pytest.fixture
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read of small files on the loop, by suffix."""
    read: list[str] = []
    read_all = SimDisk.read_all

    def noting(disk: SimDisk, path: str) -> bytes:
        if not disk._at_work:
            read.append(path.rpartition(".")[2])
        return read_all(disk, path)

    monkeypatch.setattr(SimDisk, "read_all", noting)
    return read


async def fill(node: Node) -> None:
    """A segment a day, the last one of today; of the first half nothing is to be kept."""
    log, now_ms = node.partition().log, node.env.clock.now_ms()
    for number in range(SEGMENTS):
        await node.write(batch(str(number), timestamp=now_ms - (SEGMENTS - number) * DAY_MS))
        log.roll(now_ms)
    await node.write(batch("last", timestamp=now_ms))
    await node.env.clock.sleep(1.0)


def half_of_it(expires: bool) -> Metadata:
    kept_ms = str(SEGMENTS // 2 * DAY_MS + DAY_MS // 2) if expires else "-1"
    return Metadata(topic_of("orders"), configs={"orders": {"retention.ms": kept_ms}})


def test_retention_reads_no_index_on_the_loop(on_the_loop: list[str]) -> None:
    with World(1) as world:
        start = Restarts(world, half_of_it(expires=True))

        async def after(node: Node) -> None:
            on_the_loop.clear()
            await node.manager.rounds.retain()
            assert node.partition().log_start_offset == SEGMENTS // 2
            assert "timeindex" not in on_the_loop

        start(fill, stop=False)
        start(after)


def test_the_offset_of_a_time_reads_no_index_on_the_loop(on_the_loop: list[str]) -> None:
    with World(1) as world:
        start = Restarts(world, half_of_it(expires=False))

        async def after(node: Node) -> None:
            on_the_loop.clear()
            now_ms = node.env.clock.now_ms()
            found = await node.partition().list_offset_waiting(now_ms - DAY_MS // 2, 0)
            assert isinstance(found, tuple) and found[0] == SEGMENTS
            assert "timeindex" not in on_the_loop

        start(fill, stop=False)
        start(after)


def test_who_reads_far_back_has_the_index_checked_off_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time that it was forgotten for others: it is not small."""
    at_work: list[bool] = []
    parse = TimeIndex.parse.__func__  # type: ignore[attr-defined]
    with World(1) as world:
        start = Restarts(world, half_of_it(expires=False))

        async def after(node: Node) -> None:
            def noting(cls: type[TimeIndex], data: bytes) -> TimeIndex | None:
                disk = node.env.disk
                assert isinstance(disk, SimDisk)
                at_work.append(disk._at_work)
                return parse(cls, data)

            monkeypatch.setattr(TimeIndex, "parse", classmethod(noting))
            found = await node.partition().read_waiting(5, 1, isolation=0, min_one=True)
            assert isinstance(found, Read) and found.size
            assert at_work == [True]

        start(fill, stop=False)
        start(after)


async def abort_last(node: Node) -> None:
    await fill(node)
    await node.write(batch("t", pid=7, sequence=0, transactional=True))
    await end(node, 7, commit=False)
    node.partition().log.roll(0)
    await node.write(batch("behind"))
    await node.env.clock.sleep(1.0)


def test_what_was_aborted_is_read_off_the_loop(on_the_loop: list[str]) -> None:
    with World(1) as world:
        start = Restarts(world, half_of_it(expires=False))

        async def after(node: Node) -> None:
            on_the_loop.clear()
            found = await node.partition().read_waiting(0, 1, isolation=1, min_one=True)
            assert isinstance(found, Read) and found.aborted == []
            assert "txnindex" not in on_the_loop

        start(abort_last, stop=False)
        start(after)


def test_segments_in_which_nothing_was_aborted_are_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read of what is committed looks through all that follow it for a marker that ends what it has."""
    asked: list[int] = []
    overlapping = AbortedIndex.overlapping

    def noting(index: AbortedIndex, first: int, last: int) -> tuple[list[int], bool]:
        asked.append(len(index))
        return overlapping(index, first, last)

    monkeypatch.setattr(AbortedIndex, "overlapping", noting)
    with World(1) as world:

        async def scene(node: Node) -> None:
            await abort_last(node)
            assert isinstance(node.partition().read(0, 1, isolation=1, min_one=True), Read)
            assert asked == [1]

        Restarts(world, half_of_it(expires=False))(scene)


@pytest.mark.parametrize("lost", ["timeindex", "index"])
def test_where_an_index_is_gone_the_answer_is_the_same(lost: str) -> None:
    """What can't be told off the loop the segment finds out itself, and makes its indexes anew."""
    with World(1) as world:
        start = Restarts(world, half_of_it(expires=True))

        async def after(node: Node) -> None:
            log, disk = node.partition().log, node.env.disk
            there = [name for name in disk.list(log.folder) if name.endswith(f".{lost}")]
            assert len(there) > SEGMENTS // 2
            for name in there[::3]:
                disk.remove(f"{log.folder}/{name}")
            now_ms = node.env.clock.now_ms()
            found = await node.partition().list_offset_waiting(now_ms - 9 * DAY_MS // 2, 0)
            assert isinstance(found, tuple) and found[0] == SEGMENTS - 4
            await node.manager.rounds.retain()
            assert node.partition().log_start_offset == SEGMENTS // 2

        start(fill, stop=False)
        start(after)
