"""What a fetch is given, and what it is told when the log is not what it was."""

from collections.abc import Callable
from typing import Any

import pytest
from fencepost.chaos.sim.disk import SimDisk
from fencepost.chaos.sim.sim_file import SimFile
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log.log import Log
from fencepost.replication.log.search import MAX_TIMESTAMP, Seek
from fencepost.replication.log.walk import Cold
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import (
    START_MS,
    Node,
    append,
    batch_at,
    end_txn,
    offsets_in,
    produce,
    read_all,
    read_bytes,
    run,
)


def test_a_read_starts_with_the_batch_that_holds_the_offset() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3, count=10)
        for offset in (10, 14, 19):
            found = log.read(offset, 1 << 20, limit=30, min_one=True)
            assert found is not None and (found.first_offset, found.next_offset) == (10, 30)

    run(scenario)


def test_nothing_is_read_outside_the_log_and_nothing_past_the_limit() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 4)
        log.delete_records_before(1)
        assert log.read(0, 100, limit=4, min_one=True) is None
        assert log.read(5, 100, limit=4, min_one=True) is None
        found = log.read(4, 100, limit=4, min_one=True)
        assert found is not None and found.size == 0
        assert offsets_in(read_bytes(log, 1, limit=3)) == [1, 2]
        found = log.read(3, 100, limit=3, min_one=True)
        assert found is not None and found.size == 0

    run(scenario)


def test_one_batch_is_given_though_it_is_too_large_if_the_reader_must_get_on() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 2, size=500)
        assert offsets_in(read_bytes(log, 0, 10, min_one=True)) == [0]
        assert read_bytes(log, 0, 10, min_one=False) == b""

    run(scenario)


def test_the_end_of_the_log_is_read_without_touching_the_disk() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await node.start()
        produce(log, 50)
        world.disk("n1").faults.fail("read", times=1000)
        found = log.read(49, 1000, limit=50, min_one=True)
        assert found is not None and found.next_offset == 50
        found = log.read(30, 10_000, limit=49, min_one=True)
        assert found is not None and found.next_offset == 49

    run(scenario)


def test_a_reader_that_must_not_wait_is_told_what_to_fetch_first() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 90)
        await node.settle()
        log = await node.restart("crash")
        assert len(log.segments) > 1
        read_all(log)
        for segment in log.segments:
            segment.forget_index()
            node.store.shared.pool.close(segment)
        world.disk("n1").files.file(node.path("00000000000000000000.log")).cold = True
        colds = 0
        while True:
            try:
                found = log.read(3, 200, limit=90, min_one=True, block=False)
            except Cold as cold:
                colds += 1
                await node.env.disk.run(cold.work)
            else:
                break
        assert found is not None and found.first_offset == 3
        assert colds == 2  # the index, then the headers

    run(scenario)


@pytest.mark.parametrize("field", [0, 8, 11, 16, 23])
def test_a_damaged_header_is_named_not_skipped(field: int) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=1000)
        log = await node.start()
        produce(log, 12)
        log.roll(START_MS)
        data = read_all(log)
        position = headers_of(data)[5][0]
        segment = log.segments[0]
        segment.file().write_at(position + field, bytes([data[position + field] ^ 0x80]))
        # A length that is wrong and yet fits shows at the next batch only.
        named = position + 0x80 + 90 if field == 11 else position
        with pytest.raises(LogDamaged, match=rf"0\.log is damaged at position {named}, "):
            log.read(6, 1, limit=12, min_one=True)
        assert offsets_in(read_bytes(log, 0, limit=5)) == [0, 1, 2, 3, 4]
        # Other reads go on, and so do writes.
        produce(log)
        assert offsets_in(read_bytes(log, 12)) == [12]

    run(scenario)


def test_a_file_that_is_gone_or_has_another_size_is_named() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 90)
        await node.stop()
        node.env = world.restart("n1")
        name = node.path("00000000000000000000.log")
        file = node.env.disk.open(name)
        file.append((b"x",))
        file.close()
        log = await node.start()
        with pytest.raises(LogDamaged, match=r"it holds \d+ bytes where \d+ were written"):
            log.read(0, 100, limit=90, min_one=True)
        node.env.disk.remove(name)
        with pytest.raises(LogDamaged, match=r"0\.log is missing, and with it offsets 0 to \d+"):
            log.read(0, 100, limit=90, min_one=True)
        produce(log)

    run(scenario)


def test_a_segment_that_vanished_is_seen_when_its_offsets_are_asked_for() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        for _ in range(3):
            produce(log, 2)
            log.roll(START_MS)
        del log.segments[1], log.bases[1]
        with pytest.raises(LogDamaged, match="the next file starts at offset 4"):
            log.read(3, 100, limit=6, min_one=True)

    run(scenario)


@pytest.mark.slow
@given(st.lists(st.integers(0, 90), min_size=1, max_size=20))
def test_time_and_offset_go_together(times: list[int]) -> None:
    """ListOffsets by timestamp against the plain answer: the first record that is not older."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400, index_interval_bytes=1)
        log = await node.start()
        for at, time in enumerate(times):
            append(log, batch_at(at, timestamp=START_MS + time))
        for restart in (False, True):
            if restart:
                await node.settle()
                log = await node.restart("crash")
            for wanted in range(-1, 92, 9):
                plain = next((at for at, time in enumerate(times) if time >= wanted), None)
                found = log.search(Seek(START_MS + wanted), len(times))
                assert (found and found.offset) == plain
                half = len(times) // 2
                found = log.search(Seek(START_MS + wanted), half)
                assert (found and found.offset) == (
                    plain if plain is not None and plain < half else None
                )
            newest = log.search(Seek(MAX_TIMESTAMP), log.log_end_offset)
            assert newest is not None
            assert newest.offset == times.index(max(times))
            assert newest.timestamp == START_MS + max(times)

    run(scenario)


def test_records_without_a_time_are_found_at_no_time() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        assert log.search(Seek(MAX_TIMESTAMP), log.log_end_offset) is None
        produce(log, 3, timestamp=-1)
        assert log.search(Seek(MAX_TIMESTAMP), log.log_end_offset) is None
        assert log.search(Seek(0), 3) is None

    run(scenario)


class OffTheLoop:
    """Answers questions of a log, and counts the reads that the loop itself would have waited for."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = world.disk("n1").files
        self.blocked = self.colds = 0
        self._may_read = False
        read, read_cached, read_all = SimFile.read, SimFile.read_cached, SimDisk.read_all

        def watched_read(file: SimFile, position: int, length: int) -> bytes:
            self.blocked += not self._may_read
            return read(file, position, length)

        def watched_read_all(disk: SimDisk, path: str) -> bytes:
            self.blocked += not self._may_read
            return read_all(disk, path)

        def watched_read_cached(file: SimFile, position: int, length: int) -> bytes | None:
            before, self._may_read = self._may_read, True
            try:
                return read_cached(file, position, length)
            finally:
                self._may_read = before

        monkeypatch.setattr(SimFile, "read", watched_read)
        monkeypatch.setattr(SimFile, "read_cached", watched_read_cached)
        monkeypatch.setattr(SimDisk, "read_all", watched_read_all)

    def ask(self, log: Log, question: Callable[[], Any]) -> Any:
        for segment in log.segments:
            segment.forget_index()
            if segment.size:
                self.files.file(segment.path_of(".log")).cold = True
        while True:
            try:
                return question()
            except Cold as cold:
                self.colds += 1
                self._may_read = True
                cold.work()
                self._may_read = False


@pytest.mark.parametrize("how", ["kill", "crash", "clean"])
def test_no_question_waits_for_a_cold_disk_on_the_loop(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By time, by the largest time, and which transactions were aborted: as those who may wait are answered."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400)
        log = await node.start()
        for number in range(12):
            produce(log, producer_id=1, producer_epoch=0, base_sequence=number, transactional=True,
                    timestamp=START_MS + number)  # fmt: skip
            end_txn(log, 1, commit=False)
        end = log.log_end_offset
        asked = [MAX_TIMESTAMP, *(START_MS + at for at in (-1, 0, 5, 11, 12))]
        plain = [log.search(Seek(each), end) for each in asked]
        aborted = log.aborted_between(0, end)
        assert len(log.segments) > 2 and len(aborted) == 12
        await node.settle()
        log = await node.restart(how)
        loop = OffTheLoop(world, monkeypatch)
        found = [
            loop.ask(log, lambda at=each: log.search(Seek(at), end, block=False)) for each in asked
        ]
        assert found == plain
        assert loop.ask(log, lambda: log.aborted_between(0, end, block=False)) == aborted
        assert loop.colds > 0
        assert loop.blocked == 0

    run(scenario)
