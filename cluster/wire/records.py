"""The records inside a batch, one object each: for coordinators, compaction, tools and tests. Not the hot path.

INVARIANT  reading never allocates more than `size_max` bytes and OBJECTS_MAX objects, whatever a compressed batch claims
           or unpacks to.
PREVENTS   a few kilobytes of zstd that unpack to gigabytes, or to millions of headers, taking the node down.
PROVED BY  tests/cluster/wire/test_wire_records.py::test_a_bomb_is_refused_before_it_is_unpacked
           tests/cluster/wire/test_wire_many_objects.py::test_no_objects_are_made_of_more_headers_than_fit_into_memory
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ..base.errors import ErrorCode
from ..base.ids import NO_TIMESTAMP
from ..base.ports import Buffer
from .batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_FROM,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    BatchRefused,
    compute_crc,
    parse_header,
)
from .compression import SIZE_MAX, compress, decompress

# Records and headers of one batch that is read into objects, of some 200 bytes each. librdkafka puts a million records into a
# batch at most; 3 KB of zstd hold 15 million headers.
OBJECTS_MAX: Final = 1_000_000
_BATCH: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
# Of the names of headers, which clients may give: what is read is written again as it was.
_ANY_BYTES: Final = "surrogateescape"
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_INT16: Final = Struct(">h")
_CONTROL_KEY: Final = Struct(">hh")
_CONTROL_VALUE: Final = Struct(">hi")

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. `offset` and `timestamp` are absolute; building takes only the distances between them."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlMarker(NamedTuple):
    """The end of a transaction as a partition's log has it."""

    commit: bool
    coordinator_epoch: int


def wrap_int64(value: int) -> int:
    """Sums of 64-bit times overflow silently in Java, so a batch may rely on it."""
    if -(1 << 63) <= value < 1 << 63:
        return value
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def write_varint(out: bytearray, value: int) -> None:
    """Zig-zag, as Kafka writes every number inside a record (varint and varlong alike)."""
    value = (value << 1) ^ (value >> 63)
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position behind it; at most ten bytes."""
    byte = buffer[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 127
    shift = 7
    while True:
        position += 1
        byte = buffer[position]
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if shift > 63:
            raise BatchRefused(ErrorCode.invalid_record, "a number inside a record does not end")


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zig-zag of -1
        return
    write_varint(out, len(value))
    out += value


def _encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytearray:
    body = bytearray(1)  # attributes, unused in v2
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode(errors=_ANY_BYTES))
        _write_bytes(body, value)
    return body


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = 0,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    attributes: int = 0,
) -> bytearray:
    """One batch of all `records`; a record's place in it is its offset less the first record's.

    What compaction needs is at the end: it keeps `last_offset_delta` and further attribute bits of the batch
    it rewrites, and its base timestamp when that holds a delete horizon.
    """
    all_records = list(records)
    assert all_records or last_offset_delta is not None, "an empty batch must say its offsets"
    first = base_offset
    if last_offset_delta is None:
        first = all_records[0].offset
        last_offset_delta = all_records[-1].offset - first
    if base_timestamp is None:
        base_timestamp = all_records[0].timestamp if all_records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in all_records), default=NO_TIMESTAMP)
    attributes |= compression
    attributes |= TRANSACTIONAL_FLAG if transactional else 0
    attributes |= CONTROL_FLAG if control else 0
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time
    packed = compress(compression, _encode_records(all_records, first, base_timestamp))
    batch = bytearray(HEADER_SIZE)
    _BATCH.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE + len(packed) - LENGTH_PREFIX,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(all_records),
    )
    batch += packed
    _CRC.pack_into(batch, _CRC_AT, compute_crc(batch, 0, len(batch)))
    return batch


def _encode_records(records: Sequence[Record], first: int, base_timestamp: int) -> bytearray:
    body = bytearray()
    for record in records:
        delta = wrap_int64(record.timestamp - base_timestamp)
        encoded = _encode_record(record, record.offset - first, delta)
        write_varint(body, len(encoded))
        body += encoded
    return body


def _slice(body: bytes, position: int, length: int, end: int) -> bytes:
    if length > end - position:
        raise BatchRefused(ErrorCode.invalid_record, "a field runs over the end of its record")
    return body[position : position + length]


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(body, position)
    if length < 0:
        return None, position
    return _slice(body, position, length, end), position + length


def too_many_objects() -> BatchRefused:
    """For clients, too: Java's sends smaller batches then."""
    return BatchRefused(
        ErrorCode.message_too_large,
        f"the batch has more than {OBJECTS_MAX} records and headers together",
    )


def _read_headers(body: bytes, position: int, end: int, most: int) -> tuple[Headers, int]:
    count, position = read_varint(body, position)
    if count < 0 or count > end - position:
        raise BatchRefused(ErrorCode.invalid_record, f"a record claims {count} headers")
    if count > most:
        raise too_many_objects()
    headers = []
    for _ in range(count):
        length, position = read_varint(body, position)
        if length < 0:
            raise BatchRefused(ErrorCode.invalid_record, "a record header has no name")
        name = _slice(body, position, length, end).decode(errors=_ANY_BYTES)
        value, position = _read_bytes(body, position + length, end)
        headers.append((name, value))
    return headers, position


def decode_records(
    body: bytes, count: int, *, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    """The `count` records that must fill the unpacked `body` exactly."""
    records: list[Record] = []
    position, left = 0, OBJECTS_MAX
    try:
        for _ in range(count):
            length, position = read_varint(body, position)
            end = position + length
            if length < 0 or end > len(body):
                raise BatchRefused(ErrorCode.invalid_record, f"a record claims {length} bytes")
            if left <= 0:
                raise too_many_objects()
            timestamp_delta, position = read_varint(body, position + 1)
            offset_delta, position = read_varint(body, position)
            key, position = _read_bytes(body, position, end)
            value, position = _read_bytes(body, position, end)
            headers, position = _read_headers(body, position, end, left - 1)
            left -= 1 + len(headers)
            if position != end:
                raise BatchRefused(ErrorCode.invalid_record, "a record is not as long as it claims")
            if not 0 <= offset_delta < 1 << 31:
                raise BatchRefused(ErrorCode.invalid_record, f"offset delta {offset_delta}")
            timestamp = append_time
            if timestamp is None:
                timestamp = wrap_int64(base_timestamp + timestamp_delta)
            records.append(Record(base_offset + offset_delta, timestamp, key, value, headers))
    except IndexError:
        raise BatchRefused(ErrorCode.invalid_record, "the batch ends inside a record") from None
    if position != len(body):
        raise BatchRefused(ErrorCode.invalid_record, "bytes are left behind the last record")
    return records


def _unpack(buffer: Buffer, position: int, size_max: int) -> tuple[BatchHeader, bytes]:
    header = parse_header(buffer, position)
    if header.magic != MAGIC or position + header.size > len(buffer):
        raise BatchRefused(ErrorCode.corrupt_message, f"no whole v2 batch at {position}")
    with memoryview(buffer) as whole:
        packed = whole[position + HEADER_SIZE : position + header.size]
        return header, decompress(header.compression, packed, size_max)


def read_times(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of a batch, one after the other; what else is in them is stepped over."""
    header, body = _unpack(buffer, 0, SIZE_MAX)
    append_time = header.max_timestamp if header.timestamp_type else None
    end = 0
    try:
        for _ in range(header.record_count):
            length, position = read_varint(body, end)
            end = position + length
            if length < 0 or end > len(body):
                raise BatchRefused(ErrorCode.invalid_record, f"a record claims {length} bytes")
            delta, position = read_varint(body, position + 1)
            offset_delta, _ = read_varint(body, position)
            at = wrap_int64(header.base_timestamp + delta) if append_time is None else append_time
            yield header.base_offset + offset_delta, at
    except IndexError:
        raise BatchRefused(ErrorCode.invalid_record, "the batch ends inside a record") from None


def read_records(buffer: Buffer, position: int = 0, *, size_max: int = SIZE_MAX) -> list[Record]:
    """All records of the batch at `position`, unpacked to at most `size_max` bytes. Does not check the CRC."""
    header, body = _unpack(buffer, position, size_max)
    return decode_records(
        body,
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp if header.timestamp_type else None,
    )


def recompress(buffer: Buffer, codec: int, *, size_max: int = SIZE_MAX) -> bytearray:
    """The one batch in `buffer` with its records packed by `codec` (topic config `compression.type`)."""
    header = parse_header(buffer)
    assert header.size == len(buffer), "one whole batch is recompressed at a time"
    with memoryview(buffer) as whole:
        body = decompress(header.compression, whole[HEADER_SIZE:], size_max)
        packed = compress(codec, body)
        batch = bytearray(whole[:HEADER_SIZE])
    batch += packed
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - LENGTH_PREFIX)
    _INT16.pack_into(batch, CRC_FROM, header.attributes & ~COMPRESSION_MASK | codec)
    _CRC.pack_into(batch, _CRC_AT, compute_crc(batch, 0, len(batch)))
    return batch


def control_batch(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The marker that ends a transaction in one partition (EndTransactionMarker, key and value version 0)."""
    key = _CONTROL_KEY.pack(0, CONTROL_COMMIT if commit else CONTROL_ABORT)
    value = _CONTROL_VALUE.pack(0, coordinator_epoch)
    return build_batch(
        [Record(0, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control(record: Record) -> ControlMarker | None:
    """The marker in a record of a control batch; None for a kind we do not know (a reader skips those)."""
    key, value = record.key, record.value
    if key is None or len(key) < _CONTROL_KEY.size:
        raise BatchRefused(ErrorCode.invalid_record, "a control record without a type")
    version, kind = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise BatchRefused(ErrorCode.invalid_record, f"control record version {version}")
    if kind not in (CONTROL_ABORT, CONTROL_COMMIT):
        return None
    if value is None or len(value) < _CONTROL_VALUE.size:
        raise BatchRefused(ErrorCode.invalid_record, "a transaction marker without its coordinator")
    version, coordinator_epoch = _CONTROL_VALUE.unpack_from(value)
    if version < 0:
        raise BatchRefused(ErrorCode.invalid_record, f"transaction marker version {version}")
    return ControlMarker(kind == CONTROL_COMMIT, coordinator_epoch)
