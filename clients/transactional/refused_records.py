"""Records that no broker takes: which, why, and what to do. What may go well the next time is not among them.

INVARIANT  who is told to change a record has one that is refused for what it is.
PREVENTS   an author with outputs of 5 kB and a topic of 20 kB who is told to make them smaller: they were sent in one batch.
PROVED BY  tests/clients/test_transactional_refused_records.py::test_outputs_that_fit_one_by_one_are_sent_in_smaller_batches

A record is refused at once, by librdkafka, or later, by its broker: then its delivery says so.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

from . import topic_limits

BATCH_SIZE_BYTES: Final = 1_000_000  # librdkafka's own batch.size
Told = Callable[[Any, Any], Any]  # an error, or None, and the record
OF_TRANSACTIONS: Final = ("transaction", "statistics.", "stats_cb")  # not of who asks for a limit
# What `produce` raises when it is not the record's fault: the transaction or the producer has failed meanwhile.
OF_THE_PRODUCER: Final = (
    KafkaError._STATE,
    KafkaError._FATAL,
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)
UNAUTHORIZED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
NO_TOPIC: Final = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
)
# Of a delivery: the same record is refused the next time as well.
FOR_EVER: Final = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    *UNAUTHORIZED,
    *NO_TOPIC,
)


class OutputRefused(RuntimeError):
    """A record that no broker takes: which one, why, and what to do. Nothing of its transaction was committed."""


class Words(NamedTuple):
    """What whoever writes calls things."""

    a_record: str
    config: str  # where it says what librdkafka is to be like
    another: str
    again: str
    then: str = "Its transaction was aborted"


class RefusedRecord(NamedTuple):
    error: KafkaError
    topic: str
    key: Any
    key_bytes: int
    value_bytes: int
    is_at_once: bool = False  # by librdkafka


def refused_at_once(error: KafkaError, topic: str, fields: Mapping[str, Any]) -> RefusedRecord:
    key, value = fields.get("key"), fields.get("value")
    return RefusedRecord(error, topic, key, _size(key), _size(value), is_at_once=True)


def _size(given: Any) -> int:
    return len(given.encode() if isinstance(given, str) else given or b"")


def may_pass(error: KafkaError) -> bool:
    return (
        error.fatal()
        or error.txn_requires_abort()
        or error.retriable()
        or error.code() in OF_THE_PRODUCER
    )


def telling(ours: Told, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A record's fields, of which `ours` hears first. Its own callback has two names, and librdkafka calls one of them only."""
    told = dict(fields)
    by_its_other_name = told.pop("callback", None)
    theirs = told.get("on_delivery") or by_its_other_name

    def both(error: Any, record: Any) -> None:
        ours(error, record)
        theirs(error, record)

    told["on_delivery"] = ours if theirs is None else both
    return told


class RefusedRecords:
    """Of one transaction: what its deliveries tell. Of what was sent in one batch all is refused: the largest is kept."""

    def __init__(self, client: Mapping[str, Any], words: Words) -> None:
        self._client, self._words = client, words
        self._worst: RefusedRecord | None = None

    def delivered(self, error: Any, message: Any) -> None:
        if error is None or error.code() not in FOR_EVER:
            return
        key, value = message.key(), message.value()
        found = RefusedRecord(error, message.topic(), key, _size(key), _size(value))
        worst = self._worst
        if worst is None or (
            (error.code(), found.topic) == (worst.error.code(), worst.topic)
            and found.key_bytes + found.value_bytes > worst.key_bytes + worst.value_bytes
        ):
            self._worst = found

    def refusal(self) -> OutputRefused | None:
        return None if self._worst is None else self.of(self._worst)

    def batch_that_fits(self) -> int | None:
        """A smaller batch.size with which the same records are taken; None if that does not help, or nobody says the limit."""
        worst = self._worst
        if worst is None or not topic_limits.is_too_large(worst.error):
            return None
        limit = self._limit(worst.topic)
        sizes = worst.key_bytes, worst.value_bytes
        return limit if topic_limits.is_of_batch(limit, self._batch_size(), *sizes) else None

    def of(self, each: RefusedRecord) -> OutputRefused:
        return OutputRefused(
            f"{self._words.a_record} for {each.topic} with the key {each.key!r} and a value of {each.value_bytes:,} bytes was "
            f"refused: {each.error.name()}: {each.error.str()}. {self._words.then}. {self._next_step(each)}"
        )

    def _next_step(self, each: RefusedRecord) -> str:
        if not topic_limits.is_too_large(each.error):
            return next_step(each.error, self._words)
        config = self._words.config
        if each.is_at_once:  # no broker was asked
            return (
                f"Raise message.max.bytes in {config} and {topic_limits.LIMIT} of the topic, or {self._words.another}: "
                "a smaller one"
            )
        told = topic_limits.what_to_do(
            each.topic,
            self._limit(each.topic),
            self._batch_size(),
            each.key_bytes,
            each.value_bytes,
            f"batch.size in {config}",
        )
        return told[0].upper() + told[1:]

    def _limit(self, topic: str) -> int | None:
        client = {
            name: self._client[name]
            for name in self._client
            if not name.startswith(OF_TRANSACTIONS)
        }
        return topic_limits.bytes_max(client, topic)

    def _batch_size(self) -> int:
        return int(self._client.get("batch.size", BATCH_SIZE_BYTES))


def next_step(error: KafkaError, words: Words) -> str:
    if error.code() in UNAUTHORIZED:
        return f"Grant what is missing, and {words.again}"
    if error.code() in NO_TOPIC:
        return f"Create the topic or the partition, or {words.another}, and {words.again}"
    return f"{words.another[0].upper()}{words.another[1:]}, and {words.again}"
