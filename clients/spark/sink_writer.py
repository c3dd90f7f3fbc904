"""A task's writing: its rows, in a transaction of its own, which is left open for the driver to decide.

INVARIANT  a task that says it wrote has every row acknowledged, in the transaction whose identity it tells.
PREVENTS   a batch that is committed without the rows that were still in a queue, or refused, or written by another.
PROVED BY  tests/spark/test_spark_sink.py::test_a_batch_is_there_as_a_whole_or_not_at_all

The producer is thrown away afterwards and its transaction stays open: only the driver's decision, the same attempt of
a later batch, or `transaction.timeout.ms` ends it.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException

from ..transactional import topic_limits
from ..transactional.asking_again import who_was_asked
from ..transactional.identity import retrying
from . import client_settings
from .c_producer import ColumnProducer, Identity, NotTaken
from .written_topics import WHAT_TO_DO, WrittenTopics

START_S: Final = 60.0
CALL_S: Final = 5.0
FLUSH_S: Final = 600.0
GIVE_UP_S: Final = 30.0
FENCED: Final = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
# What rows are told whose transaction has failed: that it did, and not why.
THEN_ALL: Final = (KafkaError._STATE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
NO_TOPIC: Final = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

log = logging.getLogger("fencepost.clients")


class CouldNotWrite(RuntimeError):
    """Which task, what happened, and what to do."""


class MemberWriter:
    """One attempt of one task at one partition."""

    def __init__(self, bootstrap: str, transactional_id: str, client: Mapping[str, str]) -> None:
        self._id, self._servers = transactional_id, bootstrap
        self._client = {"bootstrap.servers": bootstrap, **client}
        of_sink = client_settings.of_sink(transactional_id, client)
        self.producer = ColumnProducer({**of_sink, "bootstrap.servers": bootstrap})
        self.records = 0
        self.topics = WrittenTopics(self._client)

    def begin(self) -> None:
        """Fences an earlier run's attempt of this name, and has what it left open aborted."""
        try:
            retrying(lambda: self.producer.init_transactions(CALL_S), START_S)
        except KafkaException as trouble:
            raise CouldNotWrite(self._why("could not begin", trouble.args[0])) from trouble
        self.producer.begin_transaction()

    def write(self, rows: pa.RecordBatch, topic: str | None) -> None:
        """With the option topic all rows go there, as with Spark's Kafka connector; without it each to its own."""
        if not rows.num_rows:
            return
        parts = list(_by_topic(rows, topic))
        for name, numbers in parts:
            part = rows if numbers is None else rows.take(numbers)
            try:
                self._produce(name, part)
            except NotTaken as refused:
                row = refused.row if numbers is None else numbers[refused.row].as_py()
                raise CouldNotWrite(self._why_row(name, row, rows, refused.error)) from refused
        self.records += rows.num_rows
        self._raise_failed()
        self.topics.see(name for name, _ in parts)

    def _produce(self, topic: str, rows: pa.RecordBatch) -> None:
        headers = _column(rows, "headers")
        if headers is None or headers.null_count == len(headers):
            key, partition = _column(rows, "key"), _column(rows, "partition")
            self.producer.produce(topic, key, rows.column("value"), partition)
            return
        for number, row in enumerate(_with_headers(rows)):
            try:
                self.producer.produce_one(topic, *row)
            except NotTaken as refused:
                raise NotTaken(number, refused.error) from None

    def settle_new(self) -> None:
        """After each batch of rows: it may have had the first ones to a topic."""
        if self.topics.new:
            self.settle()

    def settle(self) -> None:
        """What was written is acknowledged: the coordinator knows of this transaction."""
        deadline = time.monotonic() + FLUSH_S
        while not self.producer.flush(CALL_S):
            self._raise_failed()
            self._raise_gone()
            if time.monotonic() > deadline:
                raise CouldNotWrite(
                    f"{self._id}: records were not acknowledged in {FLUSH_S:g} s by the leaders that {self._servers} "
                    "(kafka.bootstrap.servers) names; are they there?"
                )
        self._raise_failed()
        self.topics.note()

    def check_topics(self) -> None:
        """All is acknowledged, by the topics that have these names now."""
        self.settle()
        self._raise_unlike(self.topics.trouble())

    def written(self) -> Identity:
        """All is acknowledged, by topics that are there; who wrote it."""
        self.check_topics()
        found = self.producer.identity(START_S)
        if found is None:
            raise TimeoutError(
                f"{self._id}: librdkafka did not tell its producer id in {START_S:g} s"
            )
        return found

    def give_up(self) -> None:
        """Have readers not wait for what is never committed; whoever dies before this leaves it to its driver."""
        try:
            retrying(lambda: self.producer.abort_transaction(CALL_S), GIVE_UP_S)
        except KafkaException as trouble:
            log.warning("%s: abort: %s", self._id, trouble)

    def commit_with(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Where the task commits for itself: the records that say so go with its rows, all to one topic."""
        topic = records[0]["topic"]
        assert all(each["topic"] == topic for each in records), "one array of records has one topic"
        value = pa.array([each["value"] for each in records], pa.binary())
        key = pa.array([each["key"] for each in records], pa.binary())
        partition = pa.array([each["partition"] for each in records], pa.int32())
        try:
            self.producer.produce(topic, key, value, partition)
            retrying(lambda: self.producer.commit_transaction(CALL_S), FLUSH_S)
        except NotTaken as refused:  # it has failed already: if it was fenced, librdkafka says only "fatal error" here
            fatal = self.producer.fatal()
            why = self._why("could not commit", fatal or self._cause(refused.error))
            if fatal is None:
                self.give_up()
            raise CouldNotWrite(why) from refused
        except KafkaException as trouble:
            error = trouble.args[0]
            if error.txn_requires_abort():
                self.give_up()
            raise CouldNotWrite(self._why("could not commit", error)) from trouble

    def close(self) -> None:
        self.producer.close()

    def _raise_gone(self) -> None:
        """Of a row to a topic that was deleted librdkafka may tell nothing until `message.timeout.ms` is over."""
        with contextlib.suppress(KafkaException):  # nobody can say: the brokers are away
            self._raise_unlike(self.topics.trouble())

    def _raise_unlike(self, said: str) -> None:
        if said:
            raise CouldNotWrite(
                f"{self._id}: {said}. Nothing of this task is committed; Spark tries it again. {WHAT_TO_DO}"
            )

    def _raise_failed(self) -> None:
        """A fatal error says why all the others happened."""
        fatal = self.producer.fatal()
        if fatal is not None:
            raise CouldNotWrite(self._why("could not write", fatal))
        if self.producer.failed:
            error, topic, *_ = self.producer.failed[0]
            raise CouldNotWrite(self._why(f"could not write to {topic}", self._cause(error)))

    def _cause(self, error: KafkaError) -> KafkaError:
        """Of what happens to every row once the transaction has failed, and says nothing of the row."""
        if error.code() not in THEN_ALL:
            return error
        return self.producer.failure() or error

    def _why_row(self, topic: str, row: int, rows: pa.RecordBatch, error: KafkaError) -> str:
        number, what = self.records + row + 1, f"could not write to {topic}"
        if topic_limits.is_too_large(error):  # for librdkafka: no broker was asked
            key, value = (_size(_column(rows, name), row) for name in ("key", "value"))
            return (
                f"{self._id} {what}: {error.name()}: {error.str()}. Row {number} of the task has "
                f"{topic_limits.sizes(key, value)}: raise kafka.message.max.bytes here and max.message.bytes of the topic, or "
                "make it smaller"
            )
        why = self._why(what, self.producer.fatal() or self._cause(error))
        if error.code() == KafkaError._INVALID_ARG:
            why += f" (row {number} of the task)"
        return why

    def _why(self, what: str, error: KafkaError) -> str:
        said = f"{self._id} {what}: {error.name()}: {error.str()}"
        said += who_was_asked(error, self._servers, "kafka.bootstrap.servers")
        if error.code() in FENCED:
            said += (
                ". Another run of this query, or another query with the same transactionGroup, has begun since: this "
                "one can't write any more. Let only one of them run. Or its transaction was open for longer than "
                "kafka.transaction.timeout.ms: raise it"
            )
        elif topic_limits.is_too_large(error):
            said += f": {self._too_large()}"
        elif error.code() in NO_TOPIC:
            said += ". Is the topic there, and has it this partition? Create it, and start the query again"
        elif error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            said += (
                ". Say kafka.transaction.timeout.ms at most as large as the brokers' transaction.max.timeout.ms, and "
                "longer than any batch takes"
            )
        return said

    def _too_large(self) -> str:
        """For a broker: of its topic the largest row is told."""
        self.producer.poll(0.0)  # a transaction may be known to have failed before its rows are
        refused = [each for each in self.producer.failed if topic_limits.is_too_large(each.error)]
        if not refused:
            return "raise max.message.bytes of the topic, or say a smaller kafka.batch.size"
        largest = max(refused, key=lambda each: each.key_bytes + each.value_bytes)
        return topic_limits.what_to_do(
            largest.topic,
            topic_limits.bytes_max(self._client, largest.topic),
            int(client_settings.of_sink(self._id, self._client)["batch.size"]),
            largest.key_bytes,
            largest.value_bytes,
            "kafka.batch.size",
        )


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Any]]:
    """Each topic with the numbers of its rows; None for all of them."""
    if topic:
        yield topic, None
        return
    names = rows.column("topic").dictionary_encode()
    if names.null_count:
        raise CouldNotWrite("a row has null in the column topic, and there is no option topic")
    if len(names.dictionary) == 1:
        yield names.dictionary[0].as_py(), None
        return
    for number, name in enumerate(names.dictionary.to_pylist()):
        yield name, pc.indices_nonzero(pc.equal(names.indices, number))


def _column(rows: pa.RecordBatch, name: str) -> Any:
    return rows.column(name) if name in rows.schema.names else None


def _size(column: Any, row: int) -> int:
    return 0 if column is None else len(column[row].as_buffer() or b"")


def _with_headers(rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    nothing = [None] * rows.num_rows
    columns = []
    for name in ("key", "value", "partition", "headers"):
        found = _column(rows, name)
        columns.append(nothing if found is None else found.to_pylist())
    for key, value, partition, headers in zip(*columns, strict=True):
        given = [(each["key"], each["value"]) if each else (None, None) for each in headers or []]
        yield _bytes(key), _bytes(value), partition, given


def _bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
