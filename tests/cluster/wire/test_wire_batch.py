"""Batches on the hot path, against a slow reading of the same bytes."""

import struct

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import (
    HEADER_SIZE,
    LENGTH_PREFIX,
    BatchRefused,
    check_batch,
    check_produced,
    headers_of,
    parse_header,
    splice,
)
from fencepost.cluster.wire.records import Record, build_batch, read_records
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import batches


def slow_crc32c(data: bytes) -> int:
    """Castagnoli's polynomial, bit by bit: the slow twin of the CPU's instruction."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@given(batches())
def test_a_header_read_at_once_is_the_header_read_field_by_field(batch: bytearray) -> None:
    header = parse_header(batch)
    assert header.base_offset == int.from_bytes(batch[0:8], signed=True)
    assert header.size == int.from_bytes(batch[8:12], signed=True) + 12 == len(batch)
    assert header.leader_epoch == int.from_bytes(batch[12:16], signed=True)
    assert header.magic == batch[16]
    assert header.crc == int.from_bytes(batch[17:21]) == slow_crc32c(bytes(batch[21:]))
    assert header.attributes == int.from_bytes(batch[21:23], signed=True)
    assert header.last_offset_delta == int.from_bytes(batch[23:27], signed=True)
    assert header.base_timestamp == int.from_bytes(batch[27:35], signed=True)
    assert header.max_timestamp == int.from_bytes(batch[35:43], signed=True)
    assert header.producer_id == int.from_bytes(batch[43:51], signed=True)
    assert header.producer_epoch == int.from_bytes(batch[51:53], signed=True)
    assert header.base_sequence == int.from_bytes(batch[53:57], signed=True)
    assert header.record_count == int.from_bytes(batch[57:61], signed=True)


@settings(max_examples=60)
@given(batches(), st.data())
def test_a_batch_with_any_bit_flipped_behind_its_epoch_is_refused(
    batch: bytearray, data: st.DataObject
) -> None:
    """Behind the first 16 bytes; those before are the leader's to write, and the length is checked by size."""
    place = data.draw(st.integers(16 * 8, len(batch) * 8 - 1))
    batch[place // 8] ^= 1 << place % 8
    with pytest.raises(BatchRefused) as refused:
        check_batch(batch, 0, parse_header(batch))
    assert refused.value.code is ErrorCode.corrupt_message
    with pytest.raises(BatchRefused) as refused:
        check_produced(batch, message_max_bytes=1 << 20)
    looked_at_first = place // 8 in (16, 22)  # the magic and the codec, for an answer that says so
    assert looked_at_first or refused.value.code is ErrorCode.corrupt_message


@given(batches(), st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 50))
def test_what_is_spliced_in_changes_the_offsets_and_nothing_that_the_crc_covers(
    batch: bytearray, base_offset: int, leader_epoch: int, position: int
) -> None:
    before = read_records(batch)
    buffer = bytearray(position) + batch
    splice(memoryview(buffer), position, base_offset, leader_epoch)
    header = parse_header(buffer, position)
    check_batch(buffer, position, header)
    assert (header.base_offset, header.leader_epoch) == (base_offset, leader_epoch)
    moved = [record._replace(offset=record.offset + base_offset) for record in before]
    assert read_records(buffer, position) == moved
    assert buffer[position + 17 :] == batch[17:]


@given(batches(), st.integers(0, 2**42))
def test_append_time_replaces_every_records_time_and_the_crc(batch: bytearray, now: int) -> None:
    splice(batch, 0, 0, 0, append_time_ms=now)
    header = parse_header(batch)
    check_batch(batch, 0, header)
    assert header.timestamp_type == 1
    assert header.max_timestamp == now
    assert {record.timestamp for record in read_records(batch)} == {now}


@settings(max_examples=30)
@given(st.lists(batches(), min_size=1, max_size=4), st.integers(1, 60))
def test_batches_are_found_one_behind_the_other_and_a_rest_is_refused(
    some: list[bytearray], rest: int
) -> None:
    buffer = b"".join(some)
    found = headers_of(buffer)
    assert [header.size for _, header in found] == [len(batch) for batch in some]
    assert [position for position, _ in found] == [
        sum(map(len, some[:index])) for index in range(len(some))
    ]
    with pytest.raises(BatchRefused):
        headers_of(buffer + bytes(rest))
    with pytest.raises(BatchRefused):
        headers_of(buffer[:-1])


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else_is_raised(garbage: bytes) -> None:
    try:
        for position, header in headers_of(garbage):
            check_batch(garbage, position, header)
    except BatchRefused:
        return
    assert garbage == b""


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    batch = build_batch([Record(0, 0, b"k", b"v")])
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(BatchRefused):
        headers_of(batch)


def test_a_header_needs_only_its_own_bytes() -> None:
    """Recovery and the index read headers from the disk without the records behind them."""
    batch = build_batch([Record(0, 5, b"k", b"v" * 1000)])
    assert parse_header(batch[:HEADER_SIZE]).size == len(batch)
    with pytest.raises(BatchRefused):
        parse_header(batch[: HEADER_SIZE - 1])


def test_sequences_wrap_to_zero_behind_the_largest() -> None:
    """KIP-98: 2^31-1 is followed by 0."""
    some = [Record(index, 0, None, b"v") for index in range(4)]
    header = parse_header(build_batch(some, producer_id=1, base_sequence=2**31 - 2))
    assert header.last_sequence == 1
    assert parse_header(build_batch(some, producer_id=1, base_sequence=5)).last_sequence == 8
    assert parse_header(build_batch(some)).last_sequence == -1


def test_attributes_say_what_they_mean() -> None:
    batch = build_batch([Record(0, 7, b"k", b"v")], transactional=True, control=True, compression=3)
    header = parse_header(batch)
    assert (header.compression, header.is_transactional, header.is_control) == (3, True, True)
    assert (header.timestamp_type, header.delete_horizon, header.has_producer) == (0, None, False)
    header = parse_header(build_batch([Record(0, 7, b"k", b"v")], attributes=0x40))
    assert header.delete_horizon == 7
    assert not header.is_control


def test_compaction_may_leave_fewer_records_than_offsets_but_never_more() -> None:
    kept = build_batch([Record(12, 0, b"k", b"v")], base_offset=10, last_offset_delta=9)
    check_batch(kept, 0, parse_header(kept))
    assert read_records(kept)[0].offset == 12
    empty = build_batch([], base_offset=10, last_offset_delta=9)
    check_batch(empty, 0, parse_header(empty))
    lies = build_batch([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")], last_offset_delta=0)
    with pytest.raises(BatchRefused) as refused:
        check_batch(lies, 0, parse_header(lies))
    assert refused.value.code is ErrorCode.invalid_record


def test_sizes_count_from_the_first_byte() -> None:
    batch = build_batch([Record(0, 0, None, None)])
    assert parse_header(batch).size == len(batch)
    assert LENGTH_PREFIX + int.from_bytes(batch[8:12]) == len(batch)
