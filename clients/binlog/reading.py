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

from ..transactional.kept_topics import NOT_OURS_TO_ASK, readers

ASK_S: Final = 20.0
READ_S: Final = 90.0  # for open transactions to end, and leaders to answer
# A reader that begins elsewhere than it was told would take the end for all there is.
NOT_TO_BE_WAITED_FOR: Final = (KafkaError._AUTO_OFFSET_RESET, *NOT_OURS_TO_ASK)


class NotReadable(Exception):
    """The end of a topic can't be reached: which one, why, and what to do."""


def read_to_end(
    client: Mapping[str, str], topic: str, partition: int | None = None
) -> Iterator[Message]:
    """Of one partition, or of all, each in its order. KafkaException when there is no such topic; TimeoutError when a leader does
    not answer; NotReadable when an open transaction is in the way."""
    plain = {**readers(client), "group.id": "fencepost-reads", "enable.auto.commit": "false"}
    any_end = Consumer({**plain, "isolation.level": "read_uncommitted"})
    committed = {"isolation.level": "read_committed", "enable.partition.eof": "true"}
    unread = _Unread(topic)
    told = {"auto.offset.reset": "error", "error_cb": unread.on_trouble}
    consumer = Consumer({**plain, **committed, **told})
    try:
        known = any_end.list_topics(topic, ASK_S).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        starts = []
        for number in sorted(known.partitions) if partition is None else [partition]:
            low, high = any_end.get_watermark_offsets(TopicPartition(topic, number), ASK_S)
            starts.append(TopicPartition(topic, number, low))
            if high > low:
                unread.ends[number] = high
        consumer.assign(starts)
        yield from unread.read(consumer)
    finally:
        consumer.close()
        any_end.close()


class _Unread:
    """What is still to be read, and why it can't be."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.ends: dict[int, int] = {}
        self._stable: set[int] = set()  # partitions that were read up to the last stable offset
        self._trouble: KafkaError | None = None  # the last one
        self._is_new = False  # and whether it came with what is looked at now, before or behind it

    def on_trouble(self, error: KafkaError) -> None:
        self._trouble, self._is_new = error, True

    def read(self, consumer: Consumer) -> Iterator[Message]:
        deadline = time.monotonic() + READ_S
        while self.ends:
            self._is_new = False
            for message in consumer.consume(1_000, 0.1):
                if message.error() is None:
                    yield message
                    deadline = time.monotonic() + READ_S
                self._note(message)
            if self._is_new:
                self._stable.clear()  # as far as anybody knows
            if self.ends and time.monotonic() > deadline:
                raise self._why()

    def _note(self, message: Any) -> None:
        error, partition = message.error(), message.partition()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if error.fatal() or error.code() in NOT_TO_BE_WAITED_FOR:
                raise KafkaException(error)
            self.on_trouble(error)
            return
        if error is not None:
            self._stable.add(partition)
        else:
            self._stable.discard(partition)
        at_end = self.ends.get(partition)
        # Behind the last record there may be markers, which no reader sees.
        if at_end is not None and message.offset() >= (at_end - 1 if error is None else at_end):
            del self.ends[partition]

    def _why(self) -> Exception:
        """Only who has come to the last stable offset knows that a transaction is open behind it."""
        which = min(self._stable & set(self.ends), default=None)
        if which is not None:
            return NotReadable(
                f"{self._topic}-{which}: a transaction before offset {self.ends[which]} has been open for {READ_S:g} s. "
                "`fencepost txn find-hanging` names it"
            )
        which = min(self.ends)
        return TimeoutError(
            f"{self._topic}-{which} can't be read up to {self.ends[which]}: nothing has come from its leader for {READ_S:g} s"
            + ("" if self._trouble is None else f" ({self._trouble.str()})")
        )
