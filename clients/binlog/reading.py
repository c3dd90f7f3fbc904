"""A topic from its beginning to its end: all that is committed in it, now.

INVARIANT  what was committed before the call is read, though its markers, or others' transactions before it, are still under way.
PREVENTS   a source that finds its position behind another one's open transaction, takes an older one, and writes twice.
PROVED BY  tests/binlog/test_binlog_positions.py::test_a_position_behind_an_open_transaction_is_waited_for

A reader of committed records sees an end where the last stable offset is. A commit is answered before its markers are written,
so that the record may lie behind that: the end is asked for as readers of uncommitted records see it, and waited for.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..transactional.kept_topics import readers

ASK_S: Final = 20.0
READ_S: Final = 90.0  # for open transactions to end


class NotReadable(Exception):
    """The end of a topic can't be reached: which one, why, and what to do."""


def read_to_end(
    client: Mapping[str, str], topic: str, partition: int | None = None
) -> Iterator[Message]:
    """Of one partition, or of all, each in its order. KafkaException when there is no such topic."""
    plain = {**readers(client), "group.id": "fencepost-reads", "enable.auto.commit": "false"}
    any_end = Consumer({**plain, "isolation.level": "read_uncommitted"})
    committed = {"isolation.level": "read_committed", "enable.partition.eof": "true"}
    consumer = Consumer({**plain, **committed})
    try:
        known = any_end.list_topics(topic, ASK_S).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        ends = {}
        starts = []
        for number in sorted(known.partitions) if partition is None else [partition]:
            low, high = any_end.get_watermark_offsets(TopicPartition(topic, number), ASK_S)
            starts.append(TopicPartition(topic, number, low))
            if high > low:
                ends[number] = high
        consumer.assign(starts)
        yield from _until(consumer, topic, ends)
    finally:
        consumer.close()
        any_end.close()


def _until(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[Message]:
    deadline = time.monotonic() + READ_S
    while ends:
        if time.monotonic() > deadline:
            raise NotReadable(
                f"{topic}-{min(ends)}: a transaction before offset {ends[min(ends)]} has been open for {READ_S:g} s. "
                "`fencepost txn find-hanging` names it"
            )
        for message in consumer.consume(1_000, 0.1):
            if message.error() is None:
                yield message
                deadline = time.monotonic() + READ_S
            _note_end(message, ends)


def _note_end(message: Any, ends: dict[int, int]) -> None:
    error, partition = message.error(), message.partition()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        if error.fatal():
            raise KafkaException(error)
        return
    at_end = ends.get(partition)
    # Behind the last record there may be markers, which no reader sees.
    if at_end is not None and message.offset() >= (at_end - 1 if error is None else at_end):
        del ends[partition]
