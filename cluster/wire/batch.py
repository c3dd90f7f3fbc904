"""A Kafka record batch (v2) on the hot path: 61 bytes of header, and a body nobody looks into.

INVARIANT  a batch that is let in has the size, CRC and record count it claims, and what is later changed in it
           (base offset, leader epoch) lies before the bytes that the CRC covers.
PREVENTS   a batch whose counts lie shifting every offset behind it, or a reader of the log choking on it.
PROVED BY  tests/cluster/wire/test_batch.py::test_a_batch_with_any_bit_flipped_behind_its_epoch_is_refused

Layout (KIP-98): base offset 8, batch length 4, leader epoch 4, magic 1, CRC-32C 4 (of all that follows),
attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer id 8, producer epoch 2,
base sequence 4, record count 4, records.
"""

from struct import Struct
from typing import Final

from crc32c import crc32c

from ..base.errors import ErrorCode
from ..base.ports import Buffer

HEADER_SIZE: Final = 61
LENGTH_PREFIX: Final = 12  # base offset and length: what `batch_length` does not count
MAGIC: Final = 2
CRC_FROM: Final = 21  # the CRC covers everything from the attributes on
SEQUENCE_MAX: Final = 2**31 - 1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT32: Final = Struct(">I")
_INT16: Final = Struct(">h")
_MAX_TIMESTAMP_AT: Final = 35


class BatchRefused(Exception):
    """These bytes are not a batch, or not one that may be written; `code` is what Kafka would answer.

    `record_errors` names the records at fault (index, reason) where single records are.
    """

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors or []


class BatchHeader:
    """The numbers in front of a batch. `size` is the whole batch with its first twelve bytes."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences go from 2^31-1 to 0; -1 stands for none, as in the header."""
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id > -1

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def delete_horizon(self) -> int | None:
        """When a compacted batch's tombstones may go; the cleaner keeps it in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    def __repr__(self) -> str:
        numbers = " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"<BatchHeader {numbers}>"


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Needs only the header's bytes there, not the whole batch."""
    if len(buffer) - position < HEADER_SIZE:
        raise BatchRefused(
            ErrorCode.corrupt_message,
            f"{len(buffer) - position} bytes at {position} are too few for a batch header",
        )
    header = BatchHeader()
    (
        header.base_offset,
        length,
        header.leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    ) = _HEADER.unpack_from(buffer, position)
    if length < HEADER_SIZE - LENGTH_PREFIX:
        raise BatchRefused(
            ErrorCode.corrupt_message, f"batch at {position} claims an impossible length {length}"
        )
    header.size = length + LENGTH_PREFIX
    return header


def headers_of(buffer: Buffer) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch; the batches must fill the buffer to its last byte."""
    found = []
    position = 0
    end = len(buffer)
    while position < end:
        header = parse_header(buffer, position)
        if position + header.size > end:
            raise BatchRefused(
                ErrorCode.corrupt_message,
                f"batch at {position} claims {header.size} bytes, {end - position} are there",
            )
        found.append((position, header))
        position += header.size
    return found


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """CRC-32C of the batch at `position`: the CPU's instruction, no copy, the GIL let go above 32 KiB."""
    with memoryview(buffer) as whole, whole[position + CRC_FROM : position + size] as covered:
        return int(crc32c(covered))


def check_batch(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse a batch that can't have been written by a correct leader: for recovery and followers.

    Compaction takes records out and keeps the offsets, so the count may be below the offset range.
    """
    if header.magic != MAGIC:
        raise BatchRefused(
            ErrorCode.corrupt_message, f"batch at {position} has magic {header.magic}, not {MAGIC}"
        )
    if position + header.size > len(buffer):
        raise BatchRefused(
            ErrorCode.corrupt_message,
            f"batch at {position} claims {header.size} bytes, {len(buffer) - position} are there",
        )
    computed = compute_crc(buffer, position, header.size)
    if computed != header.crc:
        raise BatchRefused(
            ErrorCode.corrupt_message,
            f"batch at {position} has CRC {header.crc:#010x}, its bytes have {computed:#010x}",
        )
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise BatchRefused(
            ErrorCode.invalid_record,
            f"batch at {position} has offsets {header.base_offset} to {header.last_offset}",
        )
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise BatchRefused(
            ErrorCode.invalid_record,
            f"batch at {position} claims {header.record_count} records in"
            f" {header.last_offset_delta + 1} offsets",
        )


def splice(
    buffer: bytearray | memoryview,
    position: int,
    base_offset: int,
    leader_epoch: int,
    *,
    append_time_ms: int | None = None,
) -> None:
    """Stamp the leader's decision into the batch in place. The buffer must be writable.

    Offset and epoch lie before the CRC's range; only a topic with LogAppendTime pays for a new CRC.
    """
    _INT64.pack_into(buffer, position, base_offset)
    _LENGTH.pack_into(buffer, position + 12, leader_epoch)
    if append_time_ms is None:
        return
    (attributes,) = _INT16.unpack_from(buffer, position + CRC_FROM)
    _INT16.pack_into(buffer, position + CRC_FROM, attributes | LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_AT, append_time_ms)
    (length,) = _LENGTH.unpack_from(buffer, position + 8)
    crc = compute_crc(buffer, position, length + LENGTH_PREFIX)
    _UINT32.pack_into(buffer, position + 17, crc)
