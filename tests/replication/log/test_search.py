"""A search by time that is left where a batch takes long, and gone on with."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.wire.batch import compute_crc
from fencepost.cluster.wire.records import Record
from fencepost.replication.log import search
from fencepost.replication.log.log import Log
from fencepost.replication.log.search import MANY_RECORDS, MAX_TIMESTAMP, Found, Heavy, Seek
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import START_MS, Node, append, batch_at, run

ZSTD = 4
LIE = 50  # what a header claims above the youngest record of its batch


def write(log: Log, times: list[int], *, codec: int = 0, lies: bool = False) -> None:
    """One batch; nobody looks whether its header tells the truth."""
    end = log.log_end_offset
    records = [Record(end + i, START_MS + time, b"k", b"v") for i, time in enumerate(times)]
    batch = bytearray(batch_at(end, records=records, compression=codec))
    if lies:
        batch[35:43] = (START_MS + max(times) + LIE).to_bytes(8, "big")
        batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    append(log, bytes(batch))


def leave(log: Log, timestamp: int) -> tuple[Found | None, int]:
    """What was found, and how often something else was left to be done in between."""
    seek, left = Seek(timestamp, leaves=True), 0
    while True:
        try:
            return log.search(seek, log.log_end_offset), left
        except Heavy as heavy:
            heavy.work()
            left += 1


def test_what_is_packed_is_looked_into_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        log = await Node(world).start()
        write(log, [0, 9], codec=ZSTD)
        write(log, [10] * (MANY_RECORDS + 1))
        write(log, [20])
        looked: list[int] = []
        monkeypatch.setattr(search, "read_times", lambda batch: looked.append(len(batch)) or ())
        for wanted in (9, 10):
            with pytest.raises(Heavy):
                log.search(Seek(START_MS + wanted, leaves=True), log.log_end_offset)
        assert not looked
        log.search(Seek(START_MS + 20, leaves=True), log.log_end_offset)  # one record, not packed
        assert looked

    run(scenario)


def test_nothing_is_looked_into_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand batches that claim to be young: each is met, none again."""

    async def scenario(world: World) -> None:
        log = await Node(world).start()
        for _ in range(100):
            write(log, [0], codec=ZSTD, lies=True)
        write(log, [LIE], codec=ZSTD)
        assert leave(log, START_MS + LIE) == (Found(100, START_MS + LIE, 0), 101)

    run(scenario)


def test_what_was_found_and_deleted_meanwhile_is_not_told() -> None:
    async def scenario(world: World) -> None:
        log = await Node(world).start()
        write(log, [0], codec=ZSTD)
        write(log, [0])
        seek = Seek(START_MS, leaves=True)
        with pytest.raises(Heavy) as heavy:
            log.search(seek, 2)
        heavy.value.work()
        log.delete_records_before(1)
        assert log.search(seek, 2) == Found(1, START_MS, 0)

    run(scenario)


def test_no_offset_is_told_that_a_batch_does_not_have() -> None:
    """Nobody looks at offsets inside a batch when it is produced; they may be anything."""

    async def scenario(world: World) -> None:
        log = await Node(world).start()
        records = [Record(7, START_MS, b"k", b"v"), Record(0, START_MS, b"k", b"v")]
        append(log, batch_at(0, records=records, last_offset_delta=1))
        assert log.search(Seek(START_MS), 2) == Found(0, START_MS, 0)

    run(scenario)


BATCHES = st.tuples(
    st.lists(st.integers(0, 90), min_size=1, max_size=4), st.sampled_from([0, ZSTD]), st.booleans()
)


@given(st.lists(BATCHES, min_size=1, max_size=8), st.integers(0, 10))
def test_a_search_that_is_left_finds_what_a_plain_list_does(
    batches: list[tuple[list[int], int, bool]], start: int
) -> None:
    async def scenario(world: World) -> None:
        log = await Node(world, segment_bytes=400, index_interval_bytes=1).start()
        for times, codec, lies in batches:
            write(log, times, codec=codec, lies=lies)
        log.delete_records_before(min(start, log.log_end_offset))
        first = log.log_start_offset
        times = [time for each, _, _ in batches for time in each]
        claimed = [max(each) + LIE * lies for each, _, lies in batches for _ in each]
        largest = max(claimed[first:], default=None)
        for wanted in (0, 30, 60, 90):
            plain = _first(times, wanted, first)
            assert leave(log, START_MS + wanted)[0] == plain
            assert log.search(Seek(START_MS + wanted), log.log_end_offset) == plain
        if largest == max(claimed):
            assert leave(log, MAX_TIMESTAMP)[0] == _first(times, largest, first)

    run(scenario)


def _first(times: list[int], wanted: int, start: int) -> Found | None:
    for offset, time in enumerate(times):
        if offset >= start and time >= wanted:
            return Found(offset, START_MS + time, 0)
    return None
