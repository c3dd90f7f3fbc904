"""What a transactional id leaves in `__transaction_state`, in Kafka's own bytes.

INVARIANT  a record that is written and read again is the same record, and Kafka reads and writes the same bytes.
PREVENTS   transactions that can't move between Fencepost and Kafka, or a tool that reads nothing.
PROVED BY  tests/txn/test_transaction_records.py::test_what_kafka_wrote_is_read_and_written_again_byte_for_byte

Layouts: Kafka 4.3, transaction-coordinator/src/main/resources/common/message/TransactionLog{Key,Value}.json, with
NextProducerEpoch of KIP-939. Of ours there are two more tagged fields, left out wherever Kafka's own say enough;
Kafka's readers skip tags that they don't know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from fencepost.cluster.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

from ..runtime.codec import Reader, RecordRefused, Writer
from ..runtime.encoding import BATCH_BYTES_MAX, RECORD_OVERHEAD
from .transaction import CLIENT_EPOCH_MAX, COMPLETE, DECIDED, EPOCH_BUMP_VERSION, Phase, Transaction

TRANSACTION: Final = 0  # the kind of key
VALUE_VERSION_MAX: Final = 1
_HEAD: Final = Struct(
    ">hqhib"
)  # version, producer id and epoch, timeout, status: as in any version
_TIMES: Final = Struct(">qq")
STATUS_AT: Final = _HEAD.size - 1
_FLEXIBLE: Final = 1  # the version of values that has tagged fields
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION, _NEXT_PRODUCER_EPOCH = range(4)
# Ours: the epoch before, where it does not follow from the rest (KIP-360's retry, also after a move of the
# coordinator); and that an open transaction is prepared.
_LAST_PRODUCER_EPOCH: Final = 1000
_PREPARED: Final = 1001
_TAGS_MAX: Final = 64  # bytes of all of them
# With the longest names there are, each in a topic of its own.
_PARTITIONS_THAT_FIT: Final = 3_500


def value_version(it: Transaction, transaction_version: int) -> int:
    """Which version is written while the cluster's `transaction.version` is this. Kafka goes by that alone, and forgets
    what it has told a client when a coordinator moves in between."""
    says_more = (
        it.next_producer_id != NO_PRODUCER_ID
        or it.client_transaction_version >= EPOCH_BUMP_VERSION
        or it.phase is Phase.PREPARED
    )
    return _FLEXIBLE if transaction_version >= 1 or says_more else 0


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    transaction: Transaction
    version: int = _FLEXIBLE

    def encode(self) -> tuple[bytes, bytes]:
        return transaction_key(self.transaction.transactional_id), _value(
            self.transaction, self.version
        )


def fits_a_record(it: Transaction) -> bool:
    """Whether it can be written, and each state that may follow it without further partitions."""
    if len(it.partitions) < _PARTITIONS_THAT_FIT:
        return True
    key, value = TransactionRecord(it).encode()
    return len(key) + len(value) + RECORD_OVERHEAD + _TAGS_MAX <= BATCH_BYTES_MAX


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """The tombstone of a transactional id."""

    transactional_id: str

    def encode(self) -> tuple[bytes, None]:
        return transaction_key(self.transactional_id), None


def transaction_key(transactional_id: str) -> bytes:
    out = Writer()
    out.int16(TRANSACTION)
    out.string(transactional_id)
    return bytes(out.data)


def _value(it: Transaction, version: int) -> bytes:
    compact = version >= _FLEXIBLE
    status = Phase.ONGOING if it.phase is Phase.PREPARED else it.phase
    out = Writer()
    out.data += _HEAD.pack(version, it.producer_id, it.producer_epoch, it.timeout_ms, status)
    _write_partitions(out, it, compact=compact)
    out.data += _TIMES.pack(it.last_update_timestamp, it.start_timestamp)
    if compact:
        _write_tags(out, it)
    return bytes(out.data)


def _write_partitions(out: Writer, it: Transaction, *, compact: bool) -> None:
    if it.phase is Phase.EMPTY:
        out.length(None, compact=compact)
        return
    by_topic: dict[str, list[int]] = {}
    for topic, partition in it.partitions:
        by_topic.setdefault(topic, []).append(partition)
    out.length(len(by_topic), compact=compact)
    for topic, partitions in by_topic.items():
        out.string(topic, compact=compact)
        out.length(len(partitions), compact=compact)
        for partition in partitions:
            out.int32(partition)
        if compact:
            out.uvarint(0)


def _write_tags(out: Writer, it: Transaction) -> None:
    tags: dict[int, bytes] = {}
    if it.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID] = _bytes(it.previous_producer_id, 8)
    if it.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID] = _bytes(it.next_producer_id, 8)
    if it.client_transaction_version:
        tags[_CLIENT_VERSION] = _bytes(it.client_transaction_version, 2)
    if it.next_producer_epoch != NO_PRODUCER_EPOCH:
        tags[_NEXT_PRODUCER_EPOCH] = _bytes(it.next_producer_epoch, 2)
    if it.last_producer_epoch != _last_epoch(
        it.phase, it.producer_epoch, it.client_transaction_version, it.next_producer_id
    ):
        tags[_LAST_PRODUCER_EPOCH] = _bytes(it.last_producer_epoch, 2)
    if it.phase is Phase.PREPARED:
        tags[_PREPARED] = b"\1"
    out.uvarint(len(tags))
    for tag, data in tags.items():
        out.uvarint(tag)
        out.uvarint(len(data))
        out.data += data


def _bytes(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


def _last_epoch(phase: Phase, producer_epoch: int, version: int, next_producer_id: int) -> int:
    """The epoch before an end that counted one on (KIP-890): Kafka does not write it, and need not."""
    if phase not in DECIDED | COMPLETE or version < EPOCH_BUMP_VERSION:
        return NO_PRODUCER_EPOCH
    if producer_epoch == 0 or next_producer_id != NO_PRODUCER_ID:
        return CLIENT_EPOCH_MAX  # it ran over
    return producer_epoch - 1


def decode_transaction(
    kind: int, key: Reader, value: bytes | None
) -> TransactionRecord | TransactionForgotten:
    """Key kind 0, whose two bytes have been read."""
    transactional_id = key.string()
    key.end()
    if value is None:
        return TransactionForgotten(transactional_id)
    fields = Reader(value)
    version = fields.int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise RecordRefused(f"TransactionLogValue version {version} is not known")
    compact = version >= _FLEXIBLE
    producer_id = fields.int64()
    producer_epoch = fields.int16()
    timeout_ms = fields.int32()
    phase = _phase(fields.int8())
    partitions = _read_partitions(fields, compact=compact)
    last_update_timestamp = fields.int64()
    start_timestamp = fields.int64()
    tags = fields.tags() if compact else {}
    fields.end()
    if _PREPARED in tags and phase is Phase.ONGOING:
        phase = Phase.PREPARED
    client_version = _tag(tags, _CLIENT_VERSION, 0)
    next_producer_id = _tag(tags, _NEXT_PRODUCER_ID, NO_PRODUCER_ID)
    last_epoch = _last_epoch(phase, producer_epoch, client_version, next_producer_id)
    return TransactionRecord(
        Transaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            previous_producer_id=_tag(tags, _PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
            next_producer_id=next_producer_id,
            next_producer_epoch=_tag(tags, _NEXT_PRODUCER_EPOCH, NO_PRODUCER_EPOCH),
            last_producer_epoch=_tag(tags, _LAST_PRODUCER_EPOCH, last_epoch),
            timeout_ms=timeout_ms,
            phase=phase,
            # Kafka reads none of an empty one either.
            partitions=() if phase is Phase.EMPTY else partitions,
            start_timestamp=start_timestamp,
            last_update_timestamp=last_update_timestamp,
            client_transaction_version=client_version,
        ),
        version,
    )


def _phase(status: int) -> Phase:
    if status in Phase._value2member_map_ and status != Phase.PREPARED:
        return Phase(status)
    raise RecordRefused(f"transaction status {status} is not known")


def _read_partitions(fields: Reader, *, compact: bool) -> tuple[TopicPartition, ...]:
    found: dict[TopicPartition, None] = {}
    for _ in range(fields.nullable_length(compact=compact) or 0):
        topic = fields.string(compact=compact)
        for _ in range(fields.length(compact=compact)):
            found[TopicPartition(topic, fields.int32())] = None
        if compact:
            fields.tags()
    return tuple(found)


def _tag(tags: Mapping[int, bytes], tag: int, default: int) -> int:
    data = tags.get(tag)
    return default if data is None else int.from_bytes(data, "big", signed=True)
