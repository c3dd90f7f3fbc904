"""From a decision's records to the batches of a log."""

import struct
from collections.abc import Sequence
from typing import Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.records import Record, build_batch

from .decision import LogRecord, Producer

E = ErrorCode
# Kafka's message.max.bytes, less what a batch and its records' own headers may add.
BATCH_BYTES_MAX: Final = 1_048_588 - 1_024
RECORD_OVERHEAD: Final = 64


def encode(
    records: Sequence[LogRecord], now_ms: int, producer: Producer | None
) -> list[bytearray] | ErrorCode:
    """As few batches as fit the log's limit; a record that fits none is refused."""
    batches: list[bytearray] = []
    rows: list[Record] = []
    size = 0
    for record in records:
        try:
            key, value = record.encode()
        except (ValueError, struct.error):
            return E.unknown_server_error  # a client said what no record can hold
        length = len(key) + (0 if value is None else len(value)) + RECORD_OVERHEAD
        if length > BATCH_BYTES_MAX:
            return E.message_too_large
        if size + length > BATCH_BYTES_MAX:
            batches.append(_batch(rows, producer))
            rows, size = [], 0
        rows.append(Record(len(rows), now_ms, key, value))
        size += length
    if rows:
        batches.append(_batch(rows, producer))
    return batches


def _batch(rows: list[Record], producer: Producer | None) -> bytearray:
    if producer is None:
        return build_batch(rows)
    return build_batch(
        rows,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional=True,
    )
