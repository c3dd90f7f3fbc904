"""What happens to a produced batch before it is in the log: it is checked, judged, and stamped in place.

INVARIANT  the bytes that reach the log are those that were checked, but for offset, epoch and append time.
PREVENTS   a batch that a reader of the log chokes on; a copy of the records for twelve bytes that change.
PROVED BY  tests/replication/test_partition.py::test_the_records_of_a_batch_are_written_as_they_came
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ports import Buffer
from fencepost.cluster.metadata.config_def import LONG_MAX
from fencepost.cluster.metadata.topic_config import TopicConfig
from fencepost.cluster.wire.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    BatchRefused,
    check_batch,
    check_produced,
    headers_of,
    splice,
)
from fencepost.cluster.wire.produced import claims_too_many
from fencepost.cluster.wire.records import read_varint, recompress

from .log.producer_verdicts import ACCEPT, Duplicate, Refused, Verdict
from .log.producers_machine import ProducersMachine
from .log.snapshots import read_marker

# compression.type -> the codec that batches must have; "producer" leaves them as they come.
CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEAVY_RECORDS: Final = 2_000  # 3 ms
HEAVY_BYTES: Final = 64 * 1024  # to be packed, or to be looked into: 20,000 headers, 12 ms
_HEADER_STEPS: Final = 6  # a header takes 0.6 us, the length of a record 0.1
_FEW_BYTES: Final = 512  # so small a batch has no headers that are worth counting
_COUNT: Final = Struct(">i")
_COUNT_AT: Final = 57
_ATTRIBUTES_AT: Final = 22  # the lower byte, with the codec
_TIMES_AT: Final = 27
_TIMES: Final = Struct(">qq")
Headers = list[tuple[int, BatchHeader]]
Writable = bytearray | memoryview


class Appended(NamedTuple):
    """Where a batch is now. As in a produce response, the time is -1 unless the broker set it."""

    first_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Refusal(NamedTuple):
    """Why there is no answer but an error. `record_errors` names single records: (index, reason)."""

    error: ErrorCode
    message: str = ""
    record_errors: Sequence[tuple[int, str]] = ()


class Rules(NamedTuple):
    """A topic's settings as far as they concern a batch that comes in; made once, not for each batch."""

    message_max_bytes: int
    compacted: bool
    timestamp_type: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    segment_bytes: int
    codec: int  # -1: the producer's choice
    asks_each: bool  # whether each record is looked into

    @classmethod
    def of(cls, config: TopicConfig) -> "Rules":
        is_append_time = config.message_timestamp_type == "LogAppendTime"
        return cls(
            config.max_message_bytes,
            config.compact,
            LOG_APPEND_TIME if is_append_time else CREATE_TIME,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            config.segment_bytes,
            CODECS.get(config.compression_type, -1),
            config.compact
            or (not is_append_time and config.message_timestamp_before_max_ms != LONG_MAX),
        )


class Checked(NamedTuple):
    """A client's batch that `check` has been through, under these rules."""

    rules: Rules
    buffer: Writable
    headers: Headers


def may_be_heavy(records: Buffer) -> bool:
    """Whether it is worth asking `is_heavy`: most are small and not packed, whatever the settings are."""
    if len(records) < HEADER_SIZE:
        return False
    return len(records) > HEAVY_BYTES or _has_many(records) or _codec_of(records) > 0


def light_steps(records: Buffer) -> int:
    """How long `check` takes where it looks into no record but the first, in steps of 0.1 us. The header's count of
    records is a claim, and so is the first record's of its headers, but neither is walked further than it claims."""
    if len(records) <= HEADER_SIZE or _codec_of(records):
        return 0
    # Not the first record's length: it is looked at when its headers have been walked, into the next if need be.
    (claimed,) = _COUNT.unpack_from(records, _COUNT_AT)
    steps = max(0, int(claimed))
    if len(records) <= _FEW_BYTES:
        return steps
    try:
        return steps + _HEADER_STEPS * _headers_claimed(records)
    except (IndexError, BatchRefused):
        return steps  # the check ends there, too


def _headers_claimed(records: Buffer) -> int:
    """By the first record."""
    _, position = read_varint(records, HEADER_SIZE)
    _, position = read_varint(records, position + 1)  # behind the attributes: the time
    _, position = read_varint(records, position)  # the offset
    for _ in ("key", "value"):
        length, position = read_varint(records, position)
        position += max(length, 0)
    claimed, _ = read_varint(records, position)
    return max(claimed, 0)


def _has_many(records: Buffer) -> bool:
    (count,) = _COUNT.unpack_from(records, _COUNT_AT)
    return bool(count > HEAVY_RECORDS)


def _codec_of(records: Buffer) -> int:
    return records[_ATTRIBUTES_AT] & COMPRESSION_MASK


def is_heavy(records: Buffer, rules: Rules, now_ms: int) -> bool:
    """Whether `check` takes so long that others should not wait for it: it may have to unpack and pack, to look into
    each record (1.5 us) and its headers, or to unpack what claims too many. What is packed may hold anything: 4 KB of
    zstd 16 million headers, seven seconds' worth."""
    if not may_be_heavy(records):
        return False
    codec = _codec_of(records)
    if codec > 0:
        (claimed,) = _COUNT.unpack_from(records, _COUNT_AT)
        if claims_too_many(claimed, len(records)):
            return True
    packs = rules.codec >= 0 and codec != rules.codec
    if not (packs or rules.asks_each or _claims_odd_time(records, rules, now_ms)):
        return False
    return codec > 0 or _has_many(records) or len(records) > HEAVY_BYTES


def looks_into(records: Buffer, rules: Rules, now_ms: int) -> bool:
    """Whether `check` looks into each record, or packs them: light one by one, and not hundreds of them together."""
    if len(records) < HEADER_SIZE:
        return False
    packs = rules.codec >= 0 and _codec_of(records) != rules.codec
    return packs or rules.asks_each or _claims_odd_time(records, rules, now_ms)


def _claims_odd_time(records: Buffer, rules: Rules, now_ms: int) -> bool:
    """Its header claims a time that is refused, or a latest before the first: each record is looked into."""
    base, claimed = _TIMES.unpack_from(records, _TIMES_AT)
    latest = now_ms + rules.timestamp_after_max_ms
    return bool(rules.timestamp_type == CREATE_TIME and not base <= claimed <= latest)


def check(
    records: Buffer, rules: Rules, produce_version: int, now_ms: int
) -> tuple[Writable, Headers]:
    """A client's batch, writable, with its header. BatchRefused: what Kafka would say."""
    buffer = _writable(records)
    headers = check_produced(
        buffer,
        message_max_bytes=rules.message_max_bytes,
        compacted=rules.compacted,
        produce_version=produce_version,
        now_ms=now_ms,
        timestamp_type=rules.timestamp_type,
        timestamp_before_max_ms=rules.timestamp_before_max_ms,
        timestamp_after_max_ms=rules.timestamp_after_max_ms,
        segment_bytes=rules.segment_bytes,
    )
    if rules.codec < 0 or headers[0][1].compression == rules.codec:
        return buffer, headers
    buffer = recompress(buffer, rules.codec)
    headers = headers_of(buffer)
    if headers[0][1].size > rules.message_max_bytes:
        raise BatchRefused(
            ErrorCode.message_too_large,
            f"the batch has {headers[0][1].size} bytes after it was recompressed as compression.type"
            f" says, max.message.bytes is {rules.message_max_bytes}",
        )
    return buffer, headers


def take(records: Buffer) -> tuple[Writable, Headers]:
    """A coordinator's own batches: built here, so only their edges are looked at."""
    buffer = _writable(records)
    return buffer, headers_of(buffer)


def check_copied(records: Buffer, *, epoch_min: int, epoch_max: int) -> Headers:
    """A leader's batches, for a follower: whole, undamaged, and in an order that a leader's log can have."""
    headers = headers_of(records)
    if not headers:
        raise BatchRefused(ErrorCode.corrupt_message, "there must be batches, there are none")
    offset = -1
    for position, header in headers:
        check_batch(records, position, header)
        if header.base_offset < offset:
            raise not_next(header, offset)
        if not epoch_min <= header.leader_epoch <= epoch_max:
            raise BatchRefused(
                ErrorCode.corrupt_message,
                f"the batch at offset {header.base_offset} is of leader epoch {header.leader_epoch},"
                f" which can't be between {epoch_min} and {epoch_max}",
            )
        offset, epoch_min = header.next_offset, header.leader_epoch
    return headers


def not_next(header: BatchHeader, offset: int) -> BatchRefused:
    return BatchRefused(
        ErrorCode.corrupt_message,
        f"a batch at offset {header.base_offset} can't follow what ends at {offset}",
    )


def _writable(records: Buffer) -> Writable:
    if isinstance(records, bytearray):
        return records
    view = memoryview(records)
    return bytearray(view) if view.readonly else view


def judge(
    producers: ProducersMachine,
    buffer: Writable,
    headers: Headers,
    *,
    origin_client: bool,
    transaction_version: int,
) -> Duplicate | Refused | None:
    """What the producers' history says of these batches; None: write them."""
    verdict: Verdict
    for position, header in headers:
        if header.producer_id < 0:
            continue
        if header.is_control:
            marker = read_marker(bytes(buffer[position : position + header.size]), header)
            assert marker is not None, "a control batch without a marker"
            verdict = producers.decide_marker(
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                transaction_version,
            )
        else:
            verdict = producers.decide(header, origin_client=origin_client)
        if verdict is ACCEPT:
            continue
        assert isinstance(verdict, Duplicate | Refused)
        return verdict
    return None


def stamp(
    buffer: Writable, headers: Headers, offset: int, leader_epoch: int, append_time_ms: int | None
) -> None:
    """Give the batches their offsets from `offset` on, in the bytes and in the headers."""
    for position, header in headers:
        splice(buffer, position, offset, leader_epoch, append_time_ms=append_time_ms)
        header.base_offset = offset
        header.leader_epoch = leader_epoch
        if append_time_ms is not None:
            header.max_timestamp = append_time_ms
            header.attributes |= LOG_APPEND_TIME_FLAG
        offset += header.last_offset_delta + 1
