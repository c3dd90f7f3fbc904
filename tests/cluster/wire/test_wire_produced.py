"""What a client may produce. The table began with Apache Kafka 4.3.0's own verdicts, batch for batch.

A few rows came later without asking it again: the exact edges of timestamps among them.
"""

import contextlib
import struct
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchRefused,
    check_batch,
    check_produced,
    compute_crc,
    parse_header,
)
from fencepost.cluster.wire.produced import check_first_record
from fencepost.cluster.wire.records import Record, build_batch, read_records, recompress
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import batches

E = ErrorCode
NOW = 1_700_000_000_000
HOUR = 3_600_000
MEGABYTE = 1_048_588  # Kafka's default of max.message.bytes

AT = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def three(*, key: bytes | None = b"k", timestamp: int = NOW, **how: Any) -> bytearray:
    return build_batch([Record(i, timestamp, key, b"v" * 10) for i in range(3)], **how)


def change(batch: bytes, **fields: int) -> bytearray:
    """The batch with other numbers in its header, under a CRC that fits them."""
    changed = bytearray(batch)
    for name, value in fields.items():
        place, layout = AT[name]
        struct.pack_into(layout, changed, place, value)
    return seal(changed)


def seal(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, compute_crc(batch, 0, len(batch)))
    return batch


def nudge(batch: bytearray, place: int, by: int) -> bytearray:
    batch[place] = (batch[place] + by) & 255
    return seal(batch)


def verdict(batch: bytes | bytearray, **topic: Any) -> tuple[ErrorCode, list[int]]:
    settings = {
        "message_max_bytes": MEGABYTE,
        "now_ms": NOW,
        "timestamp_after_max_ms": HOUR,
        "produce_version": 12,
    }
    try:
        check_produced(bytearray(batch), **{**settings, **topic})
    except BatchRefused as refused:
        return refused.code, [index for index, _ in refused.record_errors]
    return E.none, []


GOOD = bytes(three())
# Raw snappy has no magic: only a first length that its bytes can't hold gives other bytes away.
GOOD_SNAPPY = change(GOOD, attributes=2, length=len(GOOD) - 12 - len(GOOD[61:]) + 9)[:61]
ONE = build_batch([Record(0, NOW, b"k", b"v" * 10)])
COMPACTED = {"compacted": True}
APPEND_TIME = {"timestamp_type": LOG_APPEND_TIME}
NOT_BEFORE = {"timestamp_before_max_ms": HOUR}

# name -> batch, settings of the topic, Kafka's answer
TABLE: dict[str, tuple[bytes | bytearray, dict[str, Any], ErrorCode]] = {
    "a good batch": (GOOD, {}, E.none),
    "no bytes": (b"", {}, E.invalid_record),
    "less than a header": (GOOD[:20], {}, E.invalid_record),
    "a torn batch": (GOOD[:-1], {}, E.invalid_record),
    "two batches": (GOOD + GOOD, {}, E.invalid_record),
    "magic 0": (change(GOOD, magic=0), {}, E.invalid_record),
    "magic 1": (change(GOOD, magic=1), {}, E.invalid_record),
    "magic 3": (change(GOOD, magic=3), {}, E.corrupt_message),
    "magic -1": (change(GOOD, magic=-1), {}, E.corrupt_message),
    "length 13": (change(GOOD, length=13), {}, E.corrupt_message),
    "length 20": (change(GOOD, length=20), {}, E.corrupt_message),
    "length 48": (change(GOOD, length=48), {}, E.corrupt_message),
    "length -1": (change(GOOD, length=-1), {}, E.corrupt_message),
    "base offset 5": (change(GOOD, base_offset=5), {}, E.invalid_record),
    "a wrong CRC": (GOOD[:-1] + b"z", {}, E.corrupt_message),
    "no records": (change(GOOD, record_count=0), {}, E.invalid_record),
    "a count above the offsets": (change(GOOD, record_count=4), {}, E.invalid_record),
    "a count below zero": (change(GOOD, record_count=-1), {}, E.invalid_record),
    "one record more than there": (
        change(GOOD, record_count=4, last_offset_delta=3),
        {},
        E.invalid_record,
    ),
    "one record fewer than there": (
        change(GOOD, record_count=2, last_offset_delta=1),
        {},
        E.invalid_record,
    ),
    "offsets that go backwards": (
        change(GOOD, record_count=-4, last_offset_delta=-5),
        {},
        E.invalid_record,
    ),
    "a control batch": (change(GOOD, attributes=0x20), {}, E.invalid_record),
    "the broker's timestamp type": (
        change(GOOD, attributes=8),
        APPEND_TIME,
        E.invalid_timestamp,
    ),
    "an attribute without a meaning": (change(GOOD, attributes=0x4000), {}, E.none),
    "a producer without a sequence": (
        change(GOOD, producer_id=77, producer_epoch=0, base_sequence=-1),
        {},
        E.invalid_record,
    ),
    "a sequence without a producer": (change(GOOD, base_sequence=5), {}, E.none),
    "zstd before version 7": (
        three(compression=4),
        {"produce_version": 6},
        E.unsupported_compression_type,
    ),
    "no key": (three(key=None), {}, E.none),
    "a future that is too far": (three(timestamp=NOW + HOUR + 1), {}, E.invalid_timestamp),
    "a future just near enough": (three(timestamp=NOW + HOUR), {}, E.none),
    "a far future under LogAppendTime": (three(timestamp=NOW + 2 * HOUR), APPEND_TIME, E.none),
    "a past that is too far": (three(timestamp=NOW - HOUR - 1), NOT_BEFORE, E.invalid_timestamp),
    "a past just near enough": (three(timestamp=NOW - HOUR), NOT_BEFORE, E.none),
    "any past where nobody minds": (three(timestamp=5), {}, E.none),
    "no timestamp": (three(timestamp=-1), NOT_BEFORE, E.none),
    "a max timestamp that lies high": (change(GOOD, max_timestamp=NOW + 10**9), {}, E.none),
    "a max timestamp that lies low": (change(GOOD, max_timestamp=3), {}, E.none),
    "over max.message.bytes": (
        build_batch([Record(0, NOW, b"k", bytes(1 << 20))]),
        {},
        E.message_too_large,
    ),
    "over segment.bytes": (
        build_batch([Record(0, NOW, b"k", bytes(20_000))]),
        {"segment_bytes": 14_000},
        E.record_list_too_large,
    ),
    "a record longer than its batch": (nudge(bytearray(ONE), 61, 2), {}, E.invalid_record),
    "a record shorter than its batch": (nudge(bytearray(ONE), 61, -2), {}, E.invalid_record),
    "a record of negative length": (nudge(bytearray(ONE), 61, 1), {}, E.invalid_record),
    **{f"codec {codec}": (three(compression=codec), {}, E.none) for codec in range(5)},
    **{
        f"codec {codec} compacted": (three(compression=codec), COMPACTED, E.none)
        for codec in range(5)
    },
}


@pytest.mark.parametrize("name", TABLE)
def test_a_produced_batch_is_judged_as_kafka_judges_it(name: str) -> None:
    batch, topic, expected = TABLE[name]
    assert verdict(batch, **topic)[0] is expected


@pytest.mark.parametrize(
    ("name", "batch", "expected"),
    [
        ("cut off in silence", GOOD + b"\0", E.invalid_record),
        ("cut off as corrupt", GOOD + bytes(100), E.invalid_record),
        ("flag taken back", change(GOOD, attributes=8), E.invalid_timestamp),
        ("unknown codec: UNKNOWN_SERVER_ERROR", change(GOOD, attributes=5), E(76)),
        ("not gzip: UNKNOWN_SERVER_ERROR", change(GOOD, attributes=1), E.invalid_record),
        ("not snappy: UNKNOWN_SERVER_ERROR", seal(GOOD_SNAPPY + b"\xff" * 9), E.invalid_record),
        ("not lz4: UNKNOWN_SERVER_ERROR", change(GOOD, attributes=3), E.invalid_record),
        ("not zstd: UNKNOWN_SERVER_ERROR", change(GOOD, attributes=4), E.invalid_record),
        ("written outside any txn", change(GOOD, attributes=0x10), E.invalid_record),
    ],
)
def test_where_kafka_forgives_or_stumbles_the_batch_is_refused_by_name(
    name: str, batch: bytes, expected: ErrorCode
) -> None:
    """No known client sends these; each name says what Kafka does."""
    assert verdict(batch)[0] is expected


@pytest.mark.parametrize("codec", range(5))
def test_a_produced_batch_with_its_last_bit_flipped_is_refused_whoever_packed_it(
    codec: int,
) -> None:
    """What is packed is not unpacked here: its CRC is all that tells, until somebody reads it from the log."""
    batch = three(compression=codec)
    assert verdict(batch)[0] is E.none
    batch[-1] ^= 1
    assert verdict(batch)[0] is E.corrupt_message


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_names_each_record_without_a_key(codec: int) -> None:
    some = [Record(i, NOW, None if i in (1, 3) else b"k", b"v") for i in range(5)]
    batch = build_batch(some, compression=codec)
    assert verdict(batch, compacted=True) == (E.invalid_record, [1, 3])
    assert verdict(batch) == (E.none, [])


def test_a_timestamp_out_of_range_outweighs_a_missing_key_of_another_record() -> None:
    """LogValidator.processRecordErrors: INVALID_TIMESTAMP when any record has it; keys are looked at first."""
    some = [Record(0, NOW, None, b"v"), Record(1, NOW + 2 * HOUR, b"k", b"v")]
    assert verdict(build_batch(some), compacted=True) == (E.invalid_timestamp, [0, 1])
    both = [Record(0, NOW + 2 * HOUR, None, b"v")]
    assert verdict(build_batch(both), compacted=True) == (E.invalid_record, [0])


def test_a_max_timestamp_that_lies_is_put_right_where_the_records_are_looked_at() -> None:
    """One that lies in the far future would keep its segment from retention for ever."""
    batch = change(GOOD, max_timestamp=NOW + 10**9)
    [(_, header)] = check_produced(
        batch, message_max_bytes=MEGABYTE, now_ms=NOW, timestamp_after_max_ms=HOUR
    )
    assert header.max_timestamp == parse_header(batch).max_timestamp == NOW
    check_batch(batch, 0, parse_header(batch))
    assert header.crc == parse_header(batch).crc


@pytest.mark.parametrize("codec", range(5))
def test_a_max_timestamp_before_the_first_records_is_put_right(codec: int) -> None:
    """Retention goes by it, and so does who looks for the offset of a time. Older sarama says -1 of every batch."""
    for lie in (-1, 0, NOW - 1):
        batch = change(three(compression=codec), max_timestamp=lie)
        [(_, header)] = check_produced(batch, message_max_bytes=MEGABYTE, now_ms=NOW)
        assert header.max_timestamp == parse_header(batch).max_timestamp == NOW
        check_batch(batch, 0, parse_header(batch))


def test_what_unpacks_to_too_much_is_not_refused_for_its_max_timestamp_alone() -> None:
    """34 MB of one letter in 2 KB: taken where nobody looks into records, and so with a max that was left out."""
    packed = build_batch([Record(0, NOW, b"k", b"v" * (34 << 20))], compression=4)
    batch = change(packed, max_timestamp=-1)
    [(_, header)] = check_produced(batch, message_max_bytes=MEGABYTE, now_ms=NOW)
    assert header.max_timestamp == parse_header(batch).max_timestamp == NOW
    check_batch(batch, 0, parse_header(batch))
    assert verdict(change(packed, max_timestamp=-1), **COMPACTED) == (E.message_too_large, [])
    assert verdict(change(packed, max_timestamp=-1), **NOT_BEFORE) == (E.message_too_large, [])
    assert verdict(change(packed, max_timestamp=NOW + 2 * HOUR)) == (E.message_too_large, [])


def test_a_compacted_topic_refuses_packed_counts_that_lie() -> None:
    for codec in range(5):
        batch = three(compression=codec)
        more = change(batch, record_count=4, last_offset_delta=3)
        assert verdict(more, compacted=True) == (E.invalid_record, [])
        fewer = change(batch, record_count=2, last_offset_delta=1)
        assert verdict(fewer, compacted=True) == (E.invalid_record, [])


def test_a_bomb_into_a_compacted_topic_is_refused() -> None:
    bomb = build_batch([Record(0, NOW, b"k", bytes(40 << 20))], compression=4)
    assert len(bomb) < 10_000
    assert verdict(bomb, compacted=True)[0] is E.message_too_large


@given(batches())
def test_a_batch_that_a_client_builds_is_let_in(batch: bytearray) -> None:
    [(position, header)] = check_produced(memoryview(batch), message_max_bytes=MEGABYTE)
    assert (position, header.size) == (0, len(batch))


@settings(max_examples=60)
@given(batches(codecs=[0]), st.data())
def test_the_walk_by_lengths_agrees_with_reading_every_record(
    batch: bytearray, data: st.DataObject
) -> None:
    """The quick walk is the slow reading's twin in one direction: what the slow one takes, it takes."""
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(57, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = parse_header(batch)
    change_count = max(1, header.record_count & 0xFF)
    batch = change(batch, record_count=change_count, last_offset_delta=change_count - 1)
    try:
        read_records(batch)
    except BatchRefused:
        return
    assert verdict(batch, timestamp_after_max_ms=2**63 - 1)[0] is E.none


@settings(max_examples=60)
@given(batches(), st.data(), st.booleans())
def test_a_mutated_batch_is_let_in_or_refused_and_never_raises_anything_else(
    batch: bytearray, data: st.DataObject, compacted: bool
) -> None:
    for _ in range(data.draw(st.integers(1, 6))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and len(batch) > 21:
        struct.pack_into(">I", batch, 17, compute_crc(batch, 0, len(batch)))
    code, _ = verdict(batch, compacted=compacted)
    assert isinstance(code, ErrorCode)


@given(st.binary(max_size=120), st.booleans())
def test_garbage_is_never_let_in(garbage: bytes, compacted: bool) -> None:
    assert verdict(garbage, compacted=compacted)[0] is not E.none


def test_a_length_of_a_megabyte_of_continuation_bits_is_refused_at_once() -> None:
    """Added up without a bound they make an integer of a million bits, bit by bit."""
    batch = build_batch([Record(0, NOW, b"k", bytes(1 << 20))])
    batch[61:] = b"\x80" * (len(batch) - 61)
    assert verdict(seal(batch), message_max_bytes=2 << 20)[0] is E.invalid_record
    assert verdict(batch, message_max_bytes=2 << 20, compacted=True)[0] is E.invalid_record


def lying(field: str, record: int = 0, *, codec: int = 0) -> bytearray:
    """Two records with a header each. In one of them a length inside says more than is there; its own is right."""
    records = [Record(i, NOW, b"key", b"value", [("name", b"x")]) for i in range(2)]
    batch = build_batch(records)
    size = 2 + (batch[HEADER_SIZE] >> 1) - 1
    at = HEADER_SIZE + record * size
    place = {"key": 4, "value": 8, "headers": 14, "header name": 15, "header value": 20}[field]
    batch[at + place] = 126 if field != "headers" else 8
    with contextlib.suppress(BatchRefused):
        read_records(batch)
        raise AssertionError("a reader must stumble over it")
    return seal(batch) if codec == 0 else recompress(seal(batch), codec)


LENGTHS = ["key", "value", "headers", "header name", "header value"]


@pytest.mark.parametrize("field", LENGTHS)
def test_a_first_record_whose_lengths_do_not_add_up_is_refused(field: str) -> None:
    """Kafka looks into each record that is not packed (DefaultRecord.readFrom); here the first speaks for all."""
    assert verdict(lying(field)) == (E.invalid_record, [])


@pytest.mark.parametrize("record", [0, 1])
@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("field", LENGTHS)
def test_a_compacted_topic_takes_no_record_that_its_cleaner_could_not_read(
    field: str, codec: int, record: int
) -> None:
    """One batch with a header that claims too much would end compaction on every replica, and the node with it."""
    assert verdict(lying(field, record, codec=codec), compacted=True) == (E.invalid_record, [])


@given(batches())
def test_the_first_record_of_a_good_batch_is_good(batch: bytes) -> None:
    header = parse_header(batch)
    if header.record_count and not header.compression:
        check_first_record(batch, header)
