"""Compaction against a model that keeps the last value of every key, and Kafka's finer rules one by one."""

from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.wire.batch import DELETE_HORIZON_FLAG, headers_of
from fencepost.cluster.wire.records import read_records
from fencepost.replication.log import snapshots
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.compaction import compact as one_round
from fencepost.replication.log.key_map import KeyMap
from fencepost.replication.log.log import Log
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import (
    PARTITION,
    START_MS,
    Node,
    end_txn,
    offsets_in,
    produce,
    put,
    read_all,
    records_in,
    run,
)

DAY_MS = 86_400_000


def data_in(log: Log) -> list[tuple[int, str, str | None]]:
    found = []
    data = read_all(log)
    for position, header in headers_of(data):
        if not header.is_control:
            for record in read_records(data, position):
                value = None if record.value is None else record.value.decode()
                found.append((record.offset, (record.key or b"").decode(), value))
    return found


async def compact(node: Node, now_ms: int = START_MS, *, forgets: bool = True) -> Any:
    node.log.roll(now_ms)
    end = node.log.log_end_offset
    return await node.log.compact(now_ms, end, force=True, forgets=lambda: forgets)


def compacted(world: World, **changes: Any) -> Node:
    return Node(world, compact=True, delete=False, segment_bytes=2000, **changes)


STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 3), st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, "x", "y" * 300])),
        min_size=1, max_size=4)),
    st.tuples(st.just("txn"), st.booleans(), st.integers(0, 2), st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, "x", "z" * 200])),
        min_size=1, max_size=3)),
    st.tuples(st.just("compact"), st.sampled_from([0, DAY_MS // 2, 2 * DAY_MS])),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "kill"])),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(STEPS, max_size=30), st.sampled_from([0, 16 * 24, 1 << 20]))
@settings(max_examples=100)
def test_compaction_keeps_the_last_value_of_every_key(
    steps: list[tuple[Any, ...]], map_bytes: int
) -> None:
    async def scenario(world: World) -> None:
        node = compacted(world)
        log = await node.start()
        latest: dict[str, tuple[int, str | None]] = {}
        written: dict[int, tuple[str, str | None]] = {}
        aborted: set[int] = set()
        now_ms = START_MS
        sequences: dict[int, int] = {}
        for step in steps:
            match step:
                case ("put", codec, pairs):
                    end = log.log_end_offset
                    put(log, *pairs, compression=codec)
                    for at, (key, value) in enumerate(pairs):
                        written[end + at] = (key, value)
                        latest[key] = (end + at, value)
                case ("txn", commit, producer, pairs):
                    end, sequence = log.log_end_offset, sequences.get(producer, 0)
                    put(log, *pairs, producer_id=producer, producer_epoch=0,
                        base_sequence=sequence, transactional=True)  # fmt: skip
                    sequences[producer] = sequence + len(pairs)
                    end_txn(log, producer, commit=commit)
                    for at, (key, value) in enumerate(pairs):
                        written[end + at] = (key, value)
                        if commit:
                            latest[key] = (end + at, value)
                        else:
                            aborted.add(end + at)
                case ("compact", later):
                    now_ms += later
                    log.roll(now_ms)
                    await log.compact(now_ms, log.log_end_offset, force=True)
                case ("restart", how):
                    await node.settle()
                    log = await node.restart(how)
            _check(node, written, latest, aborted)
        await _check_everything_gone_that_should(node, latest, aborted, now_ms, map_bytes)

    run(scenario)


def _check(node: Node, written: Any, latest: Any, aborted: set[int]) -> None:
    log = node.log
    data = read_all(log)
    found = data_in(log)
    assert all(written[offset] == (key, value) for offset, key, value in found)
    assert offsets_in(data) == sorted(set(offsets_in(data)))
    there = {offset for offset, _, _ in found}
    gone = {offset for offset, value in latest.values() if value is not None} - there
    assert not gone, "the newest value of a key was cleaned away"
    named = {
        offset
        for txn in log.aborted_between(log.log_start_offset, log.log_end_offset)
        for offset in range(txn.first_offset, txn.last_offset)
    }
    assert there & aborted <= named, "an aborted record is there and not named"
    machine = snapshots.new_machine(log)
    log_hint, log.hint = log.hint, None
    files, log.snapshots = log.snapshots, []
    snapshots.load_producers(log, machine)
    log.hint, log.snapshots = log_hint, files
    replayed = {state.producer_id: state.last_sequence for state in machine.states()}
    known = {state.producer_id: state.last_sequence for state in log.producers.states()}
    assert replayed == known, "the cleaned log tells another producer state"


async def _check_everything_gone_that_should(
    node: Node, latest: Any, aborted: set[int], now_ms: int, map_bytes: int
) -> None:
    log = node.log
    for _ in range(4):
        now_ms += 2 * DAY_MS
        put(log, ("last", "word"))
        log.roll(now_ms)
        log.cleaned_to = -1
        while log.cleaned_to < log.active.base_offset:
            before = log.cleaned_to
            await one_round(log, now_ms, log.log_end_offset, force=True, map_bytes=map_bytes)
            assert log.cleaned_to > before
    found = data_in(log)
    values = {key: value for _, key, value in found}
    want = {key: value for key, (_, value) in latest.items() if value is not None}
    assert values == {**want, "last": "word"}
    assert len(found) == len(values)
    assert not {offset for offset, _, _ in found} & aborted


def test_offsets_stay_and_superseded_records_go() -> None:
    async def scenario(world: World) -> None:
        node = compacted(world)
        log = await node.start()
        put(log, ("a", "1"), ("b", "1"))
        put(log, ("a", "2"))
        put(log, ("c", "1"))
        stats = await compact(node)
        assert data_in(log) == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1")]
        assert (stats.end_offset, log.log_end_offset) == (4, 4)
        assert (stats.records_read, stats.records_kept) == (4, 3)
        await node.settle()
        assert node.store.offsets.get(Kind.CLEANED, PARTITION) == 4
        assert [s.base_offset for s in log.segments] == [0, 4]

    run(scenario)


def test_a_tombstone_stays_for_delete_retention_ms_after_it_was_first_cleaned() -> None:
    """KIP-534: consumers that are that far behind must still see that the key was deleted."""

    async def scenario(world: World) -> None:
        node = compacted(world, delete_retention_ms=1000)
        log = await node.start()
        put(log, ("a", "1"))
        put(log, ("a", None))
        put(log, ("b", "1"))
        await compact(node, START_MS)
        assert data_in(log) == [(1, "a", None), (2, "b", "1")]
        header = headers_of(read_all(log))[0][1]
        assert header.attributes & DELETE_HORIZON_FLAG
        assert header.delete_horizon == START_MS + 1000
        assert records_in(read_all(log))[0].timestamp == START_MS
        log.cleaned_to = -1
        await compact(node, START_MS + 999)
        assert data_in(log) == [(1, "a", None), (2, "b", "1")]
        log.cleaned_to = -1
        await compact(node, START_MS + 1000)
        assert data_in(log) == [(2, "b", "1")]

    run(scenario)


def test_a_tombstone_and_a_marker_that_a_replica_may_lack_stay_whatever_their_age() -> None:
    """It would copy what is left of the log when it is back: the deleted value would stay, and the transaction open."""

    async def scenario(world: World) -> None:
        node = compacted(world, delete_retention_ms=0)
        log = await node.start()
        put(log, ("a", "1"))
        put(log, ("b", "1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        end_txn(log, 7, commit=True)
        put(log, ("a", None))
        put(log, ("b", "2"))
        produce(log, producer_id=7, producer_epoch=1, base_sequence=0)
        put(log, ("z", "1"))
        for now_ms in range(START_MS, START_MS + 3):
            log.cleaned_to = -1
            await compact(node, now_ms, forgets=False)
        assert (3, "a", None) in data_in(log)
        assert 2 in offsets_in(read_all(log))
        for now_ms in range(START_MS + 3, START_MS + 6):
            log.cleaned_to = -1
            await compact(node, now_ms)
        assert data_in(log)[0] == (4, "b", "2")
        assert 2 not in offsets_in(read_all(log))

    run(scenario)


def test_a_segment_that_is_cleaned_again_for_a_replica_that_came_knows_what_was_aborted() -> None:
    """The first pass has been over the ends of its transactions."""

    async def scenario(world: World) -> None:
        node = compacted(world, delete_retention_ms=0)
        log = await node.start()
        put(log, ("a", None))
        put(log, ("b", "1"))
        await compact(node)
        assert data_in(log) == [(0, "a", None), (1, "b", "1")]
        put(log, ("c", "1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        end_txn(log, 7, commit=False)
        put(log, ("d", "1"))
        log.roll(START_MS)
        everywhere = iter((True, False))
        stats = await log.compact(
            START_MS + 1, log.log_end_offset, force=True, forgets=lambda: next(everywhere)
        )
        assert not list(everywhere), "the second pass asks nobody"
        assert data_in(log) == [(0, "a", None), (1, "b", "1"), (4, "d", "1")]
        assert (stats.records_read, stats.records_kept) == (5, 4), "of one pass, the marker too"

    run(scenario)


def test_a_marker_goes_only_after_the_records_of_its_transaction() -> None:
    async def scenario(world: World) -> None:
        node = compacted(world, delete_retention_ms=1000)
        log = await node.start()
        put(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        end_txn(log, 7, commit=False)
        produce(log, producer_id=7, producer_epoch=0, base_sequence=1)
        put(log, ("z", "1"))
        now_ms = START_MS
        await compact(node, now_ms)
        # The records are gone at once, their batch is not: the producer's window still has it.
        assert data_in(log)[0][0] > 1
        assert offsets_in(read_all(log)) == [0, 1, 2, 3]
        assert [txn.first_offset for txn in log.aborted_between(0, 4)] == [0]
        for sequence in range(2, 8):  # now the window moves on
            produce(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
        for _ in range(3):
            now_ms += 2000
            log.cleaned_to = -1
            await compact(node, now_ms)
        assert min(offsets_in(read_all(log))) > 1
        assert log.aborted_between(0, log.log_end_offset) == []

    run(scenario)


def test_the_active_segment_and_what_is_undecided_are_not_cleaned() -> None:
    async def scenario(world: World) -> None:
        node = compacted(world)
        log = await node.start()
        put(log, ("a", "1"))
        put(log, ("a", "2"))
        assert (await log.compact(START_MS, log.log_end_offset, force=True)).end_offset == -1
        log.roll(START_MS)
        put(log, ("a", "3"))
        log.roll(START_MS)
        assert (await log.compact(START_MS, 1, force=True)).end_offset == -1
        assert (await log.compact(START_MS, 2, force=True)).end_offset == 2
        assert data_in(log) == [(1, "a", "2"), (2, "a", "3")]

    run(scenario)


def test_young_records_wait_for_min_compaction_lag_ms() -> None:
    async def scenario(world: World) -> None:
        node = compacted(world, min_compaction_lag_ms=1000)
        log = await node.start()
        put(log, ("a", "1"))
        put(log, ("a", "2"))
        log.roll(START_MS)
        assert log.dirt(START_MS + 999, 2) is None
        found = log.dirt(START_MS + 1000, 2)
        assert found is not None and found.is_due

    run(scenario)


def test_a_log_is_due_by_its_share_of_dirt_or_by_the_age_of_it() -> None:
    async def scenario(world: World) -> None:
        node = compacted(world, max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=0.9)
        log = await node.start()
        put(log, ("a", "1" * 500))
        await compact(node)
        put(log, ("b", "2"))
        log.roll(START_MS)
        found = log.dirt(START_MS + 4999, 2)
        assert found is not None and not found.is_due and 0 < found.ratio < 0.5
        found = log.dirt(START_MS + 5001, 2)
        assert found is not None and found.is_due

    run(scenario)


def test_small_segments_are_cleaned_into_one() -> None:
    async def scenario(world: World) -> None:
        node = compacted(world)
        log = await node.start()
        for number in range(6):
            put(log, (f"k{number}", "v" * 100))
            log.roll(START_MS)
        await compact(node)
        assert [s.base_offset for s in log.segments] == [0, 6]
        assert len(data_in(log)) == 6
        assert sum(s.size for s in log.segments) == log.size_bytes

    run(scenario)


def test_a_truncation_in_the_middle_of_a_round_ends_the_round() -> None:
    async def scenario(world: World) -> None:
        node = compacted(world)
        log = await node.start()
        for number in range(40):
            put(log, (f"k{number % 3}", "v" * 200))
        log.roll(START_MS)
        round_ = world.loop.create_task(log.compact(START_MS, log.log_end_offset, force=True))
        await node.env.clock.sleep(0.003)
        log.truncate_to(20)
        assert (await round_).end_offset == -1
        assert len(data_in(log)) == 20
        assert not [name for name in node.files() if name.endswith((".cleaned", ".swap"))]
        await compact(node)
        assert len(data_in(log)) == 3

    run(scenario)


def test_a_rotten_batch_is_not_given_a_new_checksum() -> None:

    async def scenario(world: World) -> None:
        node = compacted(world)
        log = await node.start()
        put(log, ("a", "1"))
        put(log, ("a", "2"), ("b", "1"))
        put(log, ("b", "2"))
        log.roll(START_MS)
        before = read_all(log)
        log.segments[0].file().write_at(140, bytes([before[140] ^ 4]))
        with pytest.raises(LogDamaged, match=r"0\.log is damaged at position"):
            await log.compact(START_MS, 4, force=True)
        assert len(read_all(log)) == len(before)
        assert not [name for name in node.files() if name.endswith(".cleaned")]

    run(scenario)


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62)), max_size=300))
def test_the_key_map_answers_as_a_dict_does(puts: list[tuple[bytes, int]]) -> None:
    keys, plain = KeyMap(1 << 20, 4), {}
    for key, offset in puts:
        while not keys.has_room(1):
            keys.grow()
        keys.put(key, offset)
        plain[key] = offset
    assert len(keys) == len(plain)
    for key in {key for key, _ in puts} | {b"never seen"}:
        assert keys.get(key) == plain.get(key, -1)
