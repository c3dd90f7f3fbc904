"""A task's reading: one range of one partition, as Arrow batches.

INVARIANT  a task ends when it has seen everything of its range that is there, and says so when something is not.
PREVENTS   a task that waits for an offset that a marker, an aborted transaction or compaction took.
PROVED BY  tests/spark/test_spark_reading.py::test_a_range_ends_at_markers_and_aborted_records

Offsets need not be dense: so the end is seen by a record at or after it, or by the partition's own end.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from . import data_loss
from .offsets import Range
from .schemas import arrow_schema

RECORDS_MAX: Final = 8_192  # in one Arrow batch
BYTES_MAX: Final = 8 << 20
WAIT_S: Final = 0.03  # librdkafka fills a batch for as long, whether more comes or not
SILENT_S: Final = 120.0  # without a record or an error: something is wrong
ANY_GROUP: Final = "fencepost-spark"  # librdkafka wants one; nothing is committed to it
GONE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
FATAL: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._AUTHENTICATION,
)
UNIT_US: Final = 1_000


def read_range(
    wanted: Range, client: Mapping[str, str], *, headers: bool, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    consumer = Consumer(
        {
            "group.id": ANY_GROUP,
            "queued.min.messages": 100_000,
            "fetch.wait.max.ms": 100,
            **client,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        schema = arrow_schema(headers=headers)
        for messages in _messages(consumer, wanted, fails=fail_on_data_loss):
            yield to_batch(messages, wanted, schema)
    finally:
        consumer.close()


def _messages(consumer: Consumer, wanted: Range, *, fails: bool) -> Iterator[list[Message]]:
    heard_at = time.monotonic()
    while True:
        found: list[Message] = []
        is_over = False
        for message in consumer.consume(RECORDS_MAX, WAIT_S):
            heard_at = time.monotonic()
            error = message.error()
            if error is None:
                if message.offset() >= wanted.end:
                    is_over = True
                    break
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # The end as a reader of this isolation level sees it; an end before ours is one of a moment.
                if message.offset() >= wanted.end:
                    is_over = True
                    break
            elif error.code() in GONE:
                if _skip(consumer, wanted, fails=fails):
                    is_over = True
                break
            elif error.fatal() or error.code() in FATAL:
                raise KafkaException(error)
        if found:
            yield found
            is_over = is_over or found[-1].offset() >= wanted.end - 1
        if is_over:
            return
        if time.monotonic() - heard_at > SILENT_S:
            raise TimeoutError(
                f"{wanted}: nothing came for {SILENT_S:g} s. Is its leader there, and is an older transaction open "
                "(fencepost txn list)?"
            )


def _skip(consumer: Consumer, wanted: Range, *, fails: bool) -> bool:
    """Behind what is gone; whether nothing of the range is left."""
    place = TopicPartition(wanted.topic, wanted.partition)
    first, last = consumer.get_watermark_offsets(place, timeout=20.0)
    if wanted.start < first:
        data_loss.report(
            f"{wanted}: the partition begins at {first} now, what was before it is gone.",
            fails=fails,
        )
    else:
        data_loss.report(
            f"{wanted}: the partition ends at {last} now; was the topic deleted and created again?",
            fails=fails,
        )
    if first >= wanted.end or last <= wanted.start:
        return True
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, first)])
    return False


def to_batch(messages: list[Message], wanted: Range, schema: pa.Schema) -> pa.RecordBatch:
    count = len(messages)
    stamps = [each.timestamp() for each in messages]
    columns: list[Any] = [
        pa.array([each.key() for each in messages], pa.binary()),
        pa.array([each.value() for each in messages], pa.binary()),
        pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        pa.array([each.offset() for each in messages], pa.int64()),
        pa.array([ms * UNIT_US for _, ms in stamps], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        # librdkafka counts from 1 (0: not there), Kafka and Spark from 0.
        pa.array([kind - 1 for kind, _ in stamps], pa.int32()),
    ]
    if len(schema) > len(columns):
        given = [each.headers() for each in messages]
        columns.append(pa.array([_headers(each) for each in given], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _headers(found: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in found] if found else None
