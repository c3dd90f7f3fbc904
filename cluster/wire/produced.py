"""The records of a produced batch: each, for topics that ask a question of each, and how many there can be.

INVARIANT  a compacted topic holds no record without a key, a batch's max timestamp is that of its records, and no batch
           takes more than four offsets a byte, unless what it unpacks to has room for so many records.
PREVENTS   compaction meeting a record that nothing can ever replace; 70 bytes that take two thousand million offsets.
PROVED BY  tests/cluster/wire/test_wire_produced.py::test_a_compacted_topic_names_each_record_without_a_key
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ..base.errors import ErrorCode
from ..base.ids import NO_TIMESTAMP
from ..base.ports import Buffer
from .batch import HEADER_SIZE, BatchHeader, BatchRefused, compute_crc
from .compression import NAMES, decompress, looks_like
from .records import OBJECTS_MAX, read_varint, too_many_objects, wrap_int64

_CRC: Final = Struct(">I")
_INT64: Final = Struct(">q")
_CRC_AT: Final = 17
_MAX_TIMESTAMP_AT: Final = 35
# Of a record the smallest: its length, attributes, time, offset, key, value and count of headers, a byte each.
_RECORD_MIN: Final = 7
# More packed records a byte are looked into. The most that codecs were seen to do is 1.7: a hundred thousand without key
# and value, of one time, by zstd; 0.7 by gzip, 0.25 by the others. (An offset that rises by one is no repetition.)
_USUAL_A_BYTE: Final = 4
_ERRORS_MAX: Final = 1000  # a reply has to carry them
_ANY_NUMBER: Final = 1 << 63  # of headers, where nobody makes objects of them


def check_each_record(
    buffer: Buffer,
    header: BatchHeader,
    unpacked_max: int,
    compacted: bool,
    earliest: int,
    latest: int,
) -> None:
    """Kafka's answers: INVALID_TIMESTAMP if any record's is out of range, else INVALID_RECORD, naming the records.

    No object is made for a record: a megabyte of zstd can hold millions. Compaction will make them, so a compacted topic
    takes no batch of more than OBJECTS_MAX.
    """
    try:
        with memoryview(buffer) as whole, whole[HEADER_SIZE : header.size] as packed:
            body = decompress(header.compression, packed, unpacked_max)
    except BatchRefused as refused:
        lies = header.max_timestamp < header.base_timestamp <= latest
        if refused.code is not ErrorCode.message_too_large or compacted or earliest > 0 or not lies:
            raise
        # Nothing else is asked of each, and whoever writes it can't say it better: the first record's time is near enough.
        check_packed(buffer, header, unpacked_max)
        _say_max(buffer, header, header.base_timestamp)
        return
    errors: list[tuple[int, str]] = []
    code = ErrorCode.invalid_record
    max_timestamp = NO_TIMESTAMP
    headers_max = _ANY_NUMBER
    if compacted:
        headers_max = max(OBJECTS_MAX - header.record_count, 0)
        if OBJECTS_MAX < header.record_count <= len(body) // _RECORD_MIN:
            raise too_many_objects()
    for index, (timestamp, has_key) in enumerate(_walk(body, header, headers_max)):
        max_timestamp = max(max_timestamp, timestamp)
        if compacted and not has_key:
            reason = "a compacted topic takes no record without a key"
        elif timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            code = ErrorCode.invalid_timestamp
            reason = f"timestamp {timestamp} is not between {earliest} and {latest}"
        else:
            continue
        if len(errors) < _ERRORS_MAX:
            errors.append((index, reason))
    if errors:
        what = "timestamps" if code is ErrorCode.invalid_timestamp else "keys"
        raise BatchRefused(code, f"records were refused for their {what}", errors)
    if max_timestamp != header.max_timestamp:
        _say_max(buffer, header, max_timestamp)


def _say_max(buffer: Buffer, header: BatchHeader, max_timestamp: int) -> None:
    header.max_timestamp = max_timestamp
    _INT64.pack_into(buffer, _MAX_TIMESTAMP_AT, max_timestamp)
    header.crc = compute_crc(buffer, 0, header.size)
    _CRC.pack_into(buffer, _CRC_AT, header.crc)


def claims_too_many(record_count: int, size: int) -> bool:
    """Of a packed batch of that size: whether its claim has to be looked into. No real batch was seen to come near it."""
    return record_count > _USUAL_A_BYTE * (size - HEADER_SIZE)


def check_packed(buffer: Buffer, header: BatchHeader, unpacked_max: int) -> None:
    """Its first bytes are its codec's; and if it claims too many records, what it unpacks to can hold them."""
    codec, count = header.compression, header.record_count
    with memoryview(buffer) as whole, whole[HEADER_SIZE : header.size] as packed:
        if not looks_like(codec, packed):
            raise BatchRefused(ErrorCode.invalid_record, f"the records are not {NAMES[codec]}")
        if not claims_too_many(count, header.size):
            return
        wanted = _RECORD_MIN * count
        try:
            has = len(decompress(codec, packed, min(wanted, unpacked_max)))
        except BatchRefused as refused:
            if refused.code is ErrorCode.message_too_large and wanted <= unpacked_max:
                return  # there is more than enough
            raise
    if has < wanted:
        raise BatchRefused(
            ErrorCode.invalid_record,
            f"the batch claims {count} records, of {_RECORD_MIN} bytes each at least; its {NAMES[codec]} unpacks to"
            f" {has} bytes, which hold {has // _RECORD_MIN} at most. Whoever made it counts wrong",
        )


def check_first_record(buffer: Buffer, header: BatchHeader) -> None:
    """The lengths inside the first record add up. Whoever writes them wrong does so in every record; to look into all
    of them, as Kafka does, costs 1 to 2 µs a record, a tenth of what a produced megabyte of 1 KiB records takes."""
    try:
        length, position = read_varint(buffer, HEADER_SIZE)
        end = position + length
        _, position = read_varint(buffer, position + 1)  # behind the attributes: the time
        _, position = read_varint(buffer, position)  # the offset
        for _ in ("key", "value"):
            length, position = read_varint(buffer, position)
            position += max(length, 0)
        if _end_of_headers(buffer, position) == end:
            return
    except IndexError:
        pass
    raise BatchRefused(ErrorCode.invalid_record, "record 0 is not what its lengths say")


def _end_of_headers(body: Buffer, position: int) -> int:
    """Behind the last header of a record; -1 for what can't be headers."""
    count, position = read_varint(body, position)
    if not 0 <= count <= len(body) - position:
        return -1
    for _ in range(count):
        length, position = read_varint(body, position)
        if length < 0:
            return -1  # a header has a name
        length, position = read_varint(body, position + length)
        position += max(length, 0)
    return position


def _walk(body: bytes, header: BatchHeader, headers_max: int) -> Iterator[tuple[int, bool]]:
    """Timestamp and whether there is a key, record by record; they must be as many and as long as they claim."""
    base_timestamp, position, end = header.base_timestamp, 0, 0
    try:
        for index in range(header.record_count):
            length, position = read_varint(body, end)
            end = position + length
            timestamp_delta, position = read_varint(body, position + 1)
            offset_delta, position = read_varint(body, position)
            key_length, position = read_varint(body, position)
            value_length, position = read_varint(body, position + max(key_length, 0))
            position += max(value_length, 0)
            has_headers = position + 1 != end or body[position]
            if has_headers:
                claimed, _ = read_varint(body, position)
                headers_max -= max(claimed, 0)
                if headers_max < 0:
                    raise too_many_objects()
            if offset_delta != index or (has_headers and _end_of_headers(body, position) != end):
                raise BatchRefused(
                    ErrorCode.invalid_record,
                    f"record {index} is not what its lengths and offset say",
                )
            yield wrap_int64(base_timestamp + timestamp_delta), key_length >= 0
    except IndexError:
        end = -1
    if end != len(body):
        raise BatchRefused(
            ErrorCode.invalid_record,
            f"{header.record_count} records do not fill the batch exactly",
        )
