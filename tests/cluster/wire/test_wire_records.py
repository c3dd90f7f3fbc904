"""Records in and out of batches, and the four codecs."""

import gzip
import struct
import tracemalloc

import cramjam
import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import BatchRefused, check_batch, parse_header
from fencepost.cluster.wire.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from fencepost.cluster.wire.records import (
    ControlMarker,
    Record,
    build_batch,
    control_batch,
    read_control,
    read_records,
    read_varint,
    recompress,
    write_varint,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import INT64, batches, record_lists

SHORT = st.none() | st.binary(max_size=12)
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


def plain(records: list[Record]) -> list[tuple[object, ...]]:
    return [(*record[:4], [tuple(header) for header in record.headers]) for record in records]


@given(record_lists(), st.sampled_from(range(5)), st.integers(0, 2**60))
def test_records_come_back_as_they_went_in(
    records: list[Record], codec: int, base_offset: int
) -> None:
    batch = build_batch(records, compression=codec, base_offset=base_offset)
    check_batch(batch, 0, parse_header(batch))
    expected = [record._replace(offset=record.offset + base_offset) for record in records]
    assert plain(read_records(batch)) == plain(expected)


@settings(max_examples=60)
@given(batches(), st.sampled_from(range(5)))
def test_recompressing_changes_the_packing_and_nothing_else(batch: bytearray, codec: int) -> None:
    again = recompress(batch, codec)
    header, before = parse_header(again), parse_header(batch)
    check_batch(again, 0, header)
    assert header.compression == codec
    assert read_records(again) == read_records(batch)
    assert (header.producer_id, header.base_sequence) == (before.producer_id, before.base_sequence)
    assert header.attributes & ~7 == before.attributes & ~7


@given(INT64)
def test_varints_come_back_as_they_went_in(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varint(bytes(out), 0) == (value, len(out))


def test_varints_are_zig_zag() -> None:
    for value, expected in ((0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001")):
        out = bytearray()
        write_varint(out, value)
        assert out.hex() == expected


@settings(max_examples=60)
@given(batches(), st.data())
def test_a_mutated_batch_is_read_or_refused_and_never_raises_anything_else(
    batch: bytearray, data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(8, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    try:
        read_records(batch, size_max=1 << 20)
    except BatchRefused:
        pass


@given(st.sampled_from(CODECS), st.binary(max_size=300))
def test_garbage_in_a_codec_is_refused(codec: int, garbage: bytes) -> None:
    try:
        decompress(codec, garbage, 1 << 20)
    except BatchRefused:
        return
    assert codec == SNAPPY, "a few bytes can be raw snappy by chance, never of the others"


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 3000))
def test_every_codec_unpacks_what_it_packed(codec: int, piece: bytes, times: int) -> None:
    data = piece * times
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_is_unpacked(codec: int) -> None:
    """64 MiB of nothing in a few kilobytes; a megabyte is allowed, and not much more is ever held."""
    bomb = memoryview(compress(codec, bytes(64 << 20)))
    tracemalloc.start()
    with pytest.raises(BatchRefused) as refused:
        decompress(codec, bomb, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.code is ErrorCode.message_too_large
    assert peak < 8 << 20


def test_output_of_exactly_the_limit_is_unpacked() -> None:
    for codec in CODECS:
        packed = compress(codec, bytes(300_000))
        assert len(decompress(codec, packed, 300_000)) == 300_000
        with pytest.raises(BatchRefused):
            decompress(codec, packed, 299_999)


def test_snappy_is_read_framed_as_java_writes_it_and_raw_as_librdkafka_does() -> None:
    data = b"fencepost " * 10_000
    framed = compress(SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(SNAPPY, framed) == data
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    with pytest.raises(BatchRefused):
        decompress(SNAPPY, framed[:-1])


def test_snappy_that_claims_more_than_its_bytes_can_hold_is_refused_without_the_memory() -> None:
    claims = b"\xff\xff\xff\x1f" + b"\x00"  # 64 MiB out of one byte
    tracemalloc.start()
    with pytest.raises(BatchRefused):
        decompress(SNAPPY, claims)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_lz4_frames_have_blocks_that_stand_alone_because_java_refuses_others() -> None:
    """KafkaLZ4BlockInputStream: dependent blocks are unsupported; cramjam's own frames have them."""
    data = bytes(range(256)) * 1000
    packed = compress(LZ4, data)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20, "blocks are independent"
    assert bytes(cramjam.lz4.decompress(packed)) == data


def test_gzip_of_another_writer_in_several_members_is_read() -> None:
    data = b"a" * 1000
    assert decompress(GZIP, gzip.compress(data) + gzip.compress(b"b")) == data + b"b"


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_says_how_its_transaction_ended(commit: bool) -> None:
    batch = control_batch(
        commit=commit, producer_id=9, producer_epoch=3, coordinator_epoch=12, timestamp=77
    )
    header = parse_header(batch)
    check_batch(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    [record] = read_records(batch)
    assert record.key == struct.pack(">hh", 0, int(commit))
    assert read_control(record) == ControlMarker(commit, 12)


def test_a_control_record_of_a_kind_we_do_not_know_is_skipped_not_refused() -> None:
    assert read_control(Record(0, 0, struct.pack(">hh", 0, 2), b"")) is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_control_record_without_a_kind_is_refused(key: bytes | None) -> None:
    with pytest.raises(BatchRefused):
        read_control(Record(0, 0, key, b""))


@given(SHORT, SHORT)
def test_any_control_record_is_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    try:
        marker = read_control(Record(0, 0, key, value))
    except BatchRefused:
        return
    assert marker is None or marker.commit == (key[2:4] == b"\0\1")  # type: ignore[index]


def test_times_that_are_further_apart_than_64_bits_wrap_as_in_java() -> None:
    records = [Record(0, -(2**63), b"k", b"v"), Record(1, 2**63 - 1, b"k", b"v")]
    assert read_records(build_batch(records)) == [
        records[0]._replace(headers=[]),
        records[1]._replace(headers=[]),
    ]
