"""Kafka's side: records and the position that they stand for, in one transaction.

INVARIANT  records are committed together with the position behind them, or not at all.
PREVENTS   a source that is killed between the two, and writes the records once more, or never.
PROVED BY  tests/binlog/test_binlog_kills.py::test_whatever_step_a_source_is_killed_at_each_change_is_there_once
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from ..transactional import topic_limits
from ..transactional.asking_again import retrying_for
from ..transactional.identity import retrying
from ..transactional.kept_topics import ASK_S, ensure_topic
from ..transactional.telling_producer import TellingProducer
from ..transactional.topic_limits import is_too_large, sizes
from .kept_positions import ABORT_S, CALL_S, KeptPositions, acknowledged_end
from .records import EVERY_PARTITION, Record
from .settings import Settings

START_S: Final = 60.0
COMMIT_S: Final = 60.0
QUEUE_FULL_S: Final = 60.0
DEFAULTS: Final[Mapping[str, str]] = {
    "linger.ms": "5",
    "batch.size": "1000000",
    "compression.type": "lz4",
}
PURGED_S: Final = 1.0
# Of a record that a broker does not take, whatever is tried.
NEVER_TAKEN: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
FENCED: Final = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
# What `produce` raises when the transaction or the producer has failed before, whatever the cause.
SAYS_NOT_WHY: Final = (KafkaError._STATE, KafkaError._FATAL)


class Fenced(Exception):
    """Somebody else has this source's transactional id."""


class NotWritten(Exception):
    """A record that no broker takes: which one, and why."""


class Refused(NamedTuple):
    error: KafkaError
    topic: str
    key: bytes | None
    value_bytes: int

    @property
    def size(self) -> int:
        return len(self.key or b"") + self.value_bytes


class Transactions:
    """One incarnation of the source: from its first call on no earlier one can write."""

    def __init__(self, settings: Settings, positions: KeptPositions) -> None:
        self._settings, self._positions = settings, positions
        self._partitions: dict[str, int] = {}
        self._refused: list[Refused] = []
        self._undelivered: KafkaError | None = None  # the first
        self._producer = TellingProducer(
            {
                **DEFAULTS,
                **settings.kafka,
                "bootstrap.servers": settings.bootstrap,
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": settings.transaction_timeout_s * 1_000,
            }
        )
        self.records = 0  # in the transaction that is open
        self.is_open = False

    def start(self) -> None:
        """What the incarnation before left open has ended when this returns."""
        retrying(lambda: self._producer.init_transactions(CALL_S), START_S)

    def end_of(self, topic: str) -> int:
        """How far its first partition goes at least."""
        self.is_open = True
        try:
            end = acknowledged_end(self._producer, topic)
        except KafkaException as trouble:
            raise self._why_failed(trouble) from trouble
        self.is_open = False
        return end

    def write(self, record: Record) -> None:
        if not self.is_open:
            self._producer.begin_transaction()
            self.is_open = True
        partitions = [record.partition]
        if record.partition == EVERY_PARTITION:
            partitions = list(range(self._partitions_now(record.topic)))
        else:
            self.partitions_of(record.topic)
        for partition in partitions:
            self._produce(record, partition)
            self.records += 1

    def partitions_of(self, topic: str) -> int:
        """It is created when it is not there."""
        if topic not in self._partitions:
            chosen = self._settings
            client = {**chosen.kafka, "bootstrap.servers": chosen.bootstrap}
            self._partitions[topic] = ensure_topic(
                client, topic, chosen.partitions, replication=chosen.replication
            )
        return self._partitions[topic]

    def _partitions_now(self, topic: str) -> int:
        """It may have been given more, and rows there, since it was asked for; the producer hears of them here, too."""
        known = self.partitions_of(topic)

        def ask() -> int:
            told = self._producer.list_topics(topic, ASK_S).topics[topic]
            if told.error is not None:
                raise KafkaException(told.error)
            return len(told.partitions)

        self._partitions[topic] = max(known, retrying_for(COMMIT_S, ask))
        return self._partitions[topic]

    def _produce(self, record: Record, partition: int) -> None:
        try:
            self._when_there_is_room(
                lambda: self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    partition=partition,
                    on_delivery=self._delivered,
                )
            )
        except KafkaException as trouble:
            if self._refused or not is_too_large(trouble.args[0]):
                raise self._why_failed(trouble) from trouble
            raise NotWritten(
                f"a record of {record.topic} has {sizes(len(record.key or b''), len(record.value or b''))}, more than "
                f"message.max.bytes allows: its key is {record.key!r}. Raise it with --kafka message.max.bytes=…, and at the topic max.message.bytes"
            ) from trouble
        self._producer.poll(0)

    def _when_there_is_room(self, produce: Callable[[], None]) -> None:
        deadline = time.monotonic() + QUEUE_FULL_S
        while True:
            try:
                produce()
            except BufferError as trouble:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"the brokers at {self._settings.bootstrap} have taken no record for {QUEUE_FULL_S:g} s, and more can't be held "
                        "here: are they away, or is too little of their topics in sync?"
                    ) from trouble
                self._producer.poll(0.1)
            else:
                return

    def _why_failed(self, trouble: Exception) -> Exception:
        """`produce` does not know it. The abort does, if this one was fenced; else it has the deliveries told."""
        if not self._refused and trouble.args[0].code() in SAYS_NOT_WHY:
            try:
                self._producer.abort_transaction(CALL_S)
            except KafkaException as why:
                told: Exception = why
                return told
            self.is_open, self.records = False, 0
        if self._refused:
            return NotWritten(self._why_refused())
        if self._undelivered is not None:
            trouble = KafkaException(self._undelivered)
        return trouble

    def _delivered(self, error: Any, message: Any) -> None:
        self._undelivered = self._undelivered or error
        if error is not None and error.code() in NEVER_TAKEN:
            value_bytes = len(message.value() or b"")
            self._refused.append(Refused(error, message.topic(), message.key(), value_bytes))

    def _why_refused(self) -> str:
        """Of what was sent in one batch all is refused, however small: the largest is named."""
        first = self._refused[0]
        same = (first.error.code(), first.topic)
        alike = (each for each in self._refused if (each.error.code(), each.topic) == same)
        largest = max(alike, key=lambda each: each.size)
        what_to_do = "allow this user to write there"
        if is_too_large(first.error):
            chosen = self._settings
            client = {**chosen.kafka, "bootstrap.servers": chosen.bootstrap}
            what_to_do = topic_limits.what_to_do(
                first.topic,
                topic_limits.bytes_max(client, first.topic),
                int({**DEFAULTS, **chosen.kafka}["batch.size"]),
                len(largest.key or b""),
                largest.value_bytes,
                "--kafka batch.size",
            )
        return f"{first.topic} takes no record with the key {largest.key!r} ({first.error.str()}): {what_to_do}"

    def commit(self, position: str) -> None:
        """With how far the records go."""
        if not self.is_open:
            self._producer.begin_transaction()
            self.is_open = True
        name = self._settings.source
        try:
            self._when_there_is_room(lambda: self._positions.write(self._producer, name, position))
        except KafkaException as trouble:
            raise self._why_failed(trouble) from trouble
        try:
            retrying(lambda: self._producer.commit_transaction(CALL_S), COMMIT_S)
        except KafkaException as trouble:
            if self._refused:
                raise NotWritten(self._why_refused()) from trouble
            raise
        self.is_open, self.records = False, 0

    def ask_whether_fenced(self, position: str) -> None:
        """`position`, which is kept already, is kept again: KafkaException (`is_fenced`) if somebody began after this one. What is
        open is aborted."""
        if self.is_open:
            retrying(lambda: self._producer.abort_transaction(CALL_S), ABORT_S)
            self.is_open, self.records = False, 0
        self.commit(position)

    def abandon(self) -> None:
        """Nothing more comes of this one. What is open is aborted now, or by the next incarnation's start."""
        if self.is_open:
            self.is_open = False
            try:
                self._producer.abort_transaction(CALL_S)
            except KafkaException:
                self._producer.purge()  # whoever comes next ends it
                # They are told of, to nobody: else librdkafka keeps them, and they this object and its threads. What is wrong is
                # known to who gives up: a fatal error that comes once more would hide it.
                with suppress(KafkaException):
                    self._producer.flush(PURGED_S)


def is_fenced(trouble: KafkaException) -> bool:
    return trouble.args[0].code() in FENCED
