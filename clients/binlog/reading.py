"""A topic from its beginning to its end: all that is committed in it, now.

INVARIANT  what was committed before the call is read, though its markers, or others' transactions before it, are still under way.
PREVENTS   a source that finds its position behind another one's open transaction, takes an older one, and writes twice.
PROVED BY  tests/binlog/test_binlog_positions.py::test_a_position_behind_an_open_transaction_is_waited_for

A reader of committed records sees an end where the last stable offset is. A commit is answered before its markers are written,
so that the record may lie behind that: the end is asked for as readers of uncommitted records see it, and waited for.

A leader that was deposed, and has not heard of it, tells the end that it knows (Kafka's; ours ask the quorum). So whoever must miss
nothing first writes, and says where: with an end before that another client is made, which asks another broker whom it takes for
the leader. So is one that reads, and gets no further.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..transactional.inputs import CHECKED
from ..transactional.kept_topics import NOT_OURS_TO_ASK, readers

ASK_S: Final = 20.0
READ_S: Final = 90.0  # for open transactions to end, and leaders to answer
NEW_CLIENT_S: Final = 10.0  # without anything new; it may be at a leader that was deposed
PAUSE_S: Final = 0.5  # between two that ask for the end
# A reader that begins elsewhere than it was told would take the end for all there is.
NOT_TO_BE_WAITED_FOR: Final = (KafkaError._AUTO_OFFSET_RESET, *NOT_OURS_TO_ASK)


class NotReadable(Exception):
    """The end of a topic can't be reached: which one, why, and what to do."""


def read_to_end(
    client: Mapping[str, str], topic: str, partition: int | None = None, at_least: int = 0
) -> Iterator[Message]:
    """Of one partition, or of all, each in its order. KafkaException when there is no such topic; TimeoutError when a leader does
    not answer, or none has come to `at_least`; NotReadable when an open transaction is in the way."""
    plain = {**CHECKED, **readers(client), "group.id": "fencepost-reads"}
    plain["enable.auto.commit"] = "false"
    committed = {"isolation.level": "read_committed", "enable.partition.eof": "true"}
    unread = _Unread(topic)
    told = {"auto.offset.reset": "error", "error_cb": unread.on_trouble}
    starts = _starts(unread, {**plain, "isolation.level": "read_uncommitted"}, partition, at_least)
    yield from unread.read(lambda: Consumer({**plain, **committed, **told}), starts)


def _starts(
    unread: "_Unread", settings: Mapping[str, str], partition: int | None, at_least: int
) -> dict[int, int]:
    """Where each partition begins. Its end is told to `unread`."""
    deadline = time.monotonic() + READ_S
    while True:
        any_end = Consumer(settings)
        try:
            starts, ends = _bounds(any_end, unread.topic, partition)
        finally:
            any_end.close()
        short = min((each for each in ends if ends[each] < at_least), default=None)
        if short is None:
            unread.ends = {each: ends[each] for each in ends if ends[each] > starts[each]}
            return starts
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{unread.topic}-{short} ends at {ends[short]}, say those that were asked for {READ_S:g} s, and what is before "
                f"{at_least} was acknowledged: is a broker cut off from its cluster?"
            )
        time.sleep(PAUSE_S)


def _bounds(
    client: Consumer, topic: str, partition: int | None
) -> tuple[dict[int, int], dict[int, int]]:
    known = client.list_topics(topic, ASK_S).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    starts, ends = {}, {}
    for number in sorted(known.partitions) if partition is None else [partition]:
        place = TopicPartition(topic, number)
        starts[number], ends[number] = client.get_watermark_offsets(place, ASK_S)
    return starts, ends


class _Unread:
    """What is still to be read, and why it can't be."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.ends: dict[int, int] = {}
        self._stable: set[int] = set()  # partitions that were read up to the last stable offset
        self._trouble: KafkaError | None = None  # the last one
        self._is_new = False  # and whether it came with what is looked at now, before or behind it

    def on_trouble(self, error: KafkaError) -> None:
        self._trouble, self._is_new = error, True

    def read(self, make: Callable[[], Consumer], starts: Mapping[int, int]) -> Iterator[Message]:
        deadline, nexts = time.monotonic() + READ_S, dict(starts)
        consumer: Consumer | None = None
        try:
            while self.ends:
                if consumer is None:
                    consumer, renewed_at = make(), time.monotonic() + NEW_CLIENT_S
                    consumer.assign([TopicPartition(self.topic, n, nexts[n]) for n in self.ends])
                self._is_new = False
                for message in consumer.consume(1_000, 0.1):
                    if message.error() is None:
                        nexts[message.partition()] = message.offset() + 1
                        yield message
                        deadline = time.monotonic() + READ_S
                        renewed_at = time.monotonic() + NEW_CLIENT_S
                    self._note(message)
                if self._is_new:
                    self._stable.clear()  # as far as anybody knows
                if self.ends and time.monotonic() > deadline:
                    raise self._why()
                if self.ends and time.monotonic() > renewed_at:
                    consumer.close()
                    consumer = None
        finally:
            if consumer is not None:
                consumer.close()

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
                f"{self.topic}-{which}: a transaction before offset {self.ends[which]} has been open for {READ_S:g} s. "
                "`fencepost txn find-hanging` names it"
            )
        which = min(self.ends)
        return TimeoutError(
            f"{self.topic}-{which} can't be read up to {self.ends[which]}: nothing has come from its leader for {READ_S:g} s"
            + ("" if self._trouble is None else f" ({self._trouble.str()})")
        )
