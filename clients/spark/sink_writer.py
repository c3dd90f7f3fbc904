"""A task's writing: its rows, in a transaction of its own, which is left open for the driver to decide.

INVARIANT  a task that says it wrote has every row acknowledged, in the transaction whose identity it tells.
PREVENTS   a batch that is committed without the rows that were still in a queue, or refused, or written by another.
PROVED BY  tests/spark/test_spark_sink.py::test_a_batch_is_there_as_a_whole_or_not_at_all

The producer is thrown away afterwards and its transaction stays open: only the driver's decision, the same attempt of
a later batch, or `transaction.timeout.ms` ends it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from ..transactional.identity import IdentifiedProducer, ProducerIdentity, retrying

START_S: Final = 60.0
CALL_S: Final = 5.0
FLUSH_S: Final = 600.0
STATISTICS_MS: Final = 20  # a task's last wait is for these
# As long as brokers allow (transaction.max.timeout.ms): a task's transaction is open until the last task has written.
TRANSACTION_TIMEOUT_MS: Final = "900000"
DEFAULTS: Final[Mapping[str, str]] = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "linger.ms": "20",
    "batch.size": "1000000",
    "compression.type": "lz4",
}
FENCED: Final = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)

log = logging.getLogger("fencepost.clients")


class CouldNotWrite(RuntimeError):
    """Which task, what happened, and what to do."""


class Row(NamedTuple):
    topic: str
    key: bytes | str | None
    value: bytes | str | None
    partition: int | None
    headers: list[tuple[str, bytes | None]] | None


class MemberWriter:
    """One attempt of one task at one partition."""

    def __init__(self, bootstrap: str, transactional_id: str, client: Mapping[str, str]) -> None:
        self._failed: list[Any] = []
        self._id = transactional_id
        self._identified = IdentifiedProducer(
            bootstrap,
            transactional_id,
            {
                **DEFAULTS,
                **{k: v for k, v in client.items() if k != "isolation.level"},
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
            },
            statistics_ms=STATISTICS_MS,
        )
        self.records = 0

    @property
    def producer(self) -> Producer:
        return self._identified.producer

    def begin(self) -> None:
        """Fences an earlier run's attempt of this name, and has what it left open aborted."""
        try:
            retrying(lambda: self.producer.init_transactions(CALL_S), START_S)
        except KafkaException as trouble:
            raise CouldNotWrite(self._why("could not begin", trouble.args[0])) from trouble
        self.producer.begin_transaction()

    def write(self, rows: Iterable[Row]) -> None:
        produce, poll = self.producer.produce, self.producer.poll
        for topic, key, value, partition, headers in rows:
            fields: dict[str, Any] = {"key": key, "value": value}
            if partition is not None:
                fields["partition"] = partition
            if headers is not None:
                fields["headers"] = headers
            while True:
                try:
                    produce(topic, **fields)
                except BufferError:
                    self._serve(poll, 0.05)  # its queue is full
                except KafkaException as trouble:
                    raise CouldNotWrite(self._why_row(topic, value, trouble.args[0])) from trouble
                else:
                    break
            self.records += 1
            if self._failed:
                self._raise_failed()
        self._serve(poll, 0.0)

    def written(self) -> ProducerIdentity:
        """All is acknowledged; who wrote it."""
        deadline = time.monotonic() + FLUSH_S
        while self._serve(self.producer.flush, CALL_S) and not self._failed:
            if time.monotonic() > deadline:
                raise CouldNotWrite(
                    f"{self._id}: records were not acknowledged in {FLUSH_S:g} s; are the leaders there?"
                )
        if self._failed:
            self._raise_failed()
        return self._identified.identity(timeout_s=START_S)

    def give_up(self) -> None:
        """Have readers not wait for what is never committed; whoever dies before this leaves it to its driver."""
        try:
            self.producer.abort_transaction(CALL_S)
        except KafkaException as trouble:
            log.warning("%s: abort: %s", self._id, trouble)

    def commit_with(self, record: Mapping[str, Any]) -> None:
        """Where the task commits for itself: the record that says so goes with its rows."""
        self.producer.produce(**record)
        try:
            retrying(lambda: self.producer.commit_transaction(CALL_S), FLUSH_S)
        except KafkaException as trouble:
            error = trouble.args[0]
            if error.txn_requires_abort():
                self.producer.abort_transaction(CALL_S)
            raise CouldNotWrite(self._why("could not commit", error)) from trouble

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append((error, message.topic() if message is not None else "?"))

    def _serve(self, call: Callable[[float], int], wait_s: float) -> int:
        """`poll` and `flush` raise a fatal error, sometimes across a delivery report: then Python names the wrong one."""
        try:
            return call(wait_s)
        except (KafkaException, SystemError) as trouble:
            fatal = trouble.__cause__ if isinstance(trouble, SystemError) else trouble
            if not isinstance(fatal, KafkaException):
                raise
            raise CouldNotWrite(self._why("could not write", fatal.args[0])) from trouble

    def _raise_failed(self) -> None:
        error, topic = self._failed[0]
        raise CouldNotWrite(self._why(f"could not write to {topic}", error))

    def _why_row(self, topic: str, value: Any, error: KafkaError) -> str:
        why = self._why(f"could not write to {topic}", error)
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            why += (
                f". Row {self.records + 1} of the task has a value of {len(value or b''):,} bytes: raise "
                "kafka.message.max.bytes here and max.message.bytes of the topic, or make it smaller"
            )
        return why

    def _why(self, what: str, error: KafkaError) -> str:
        said = f"{self._id} {what}: {error.name()}: {error.str()}"
        if error.code() in FENCED:
            said += (
                ". Another run of this query, or another query with the same transactionGroup, has begun since: this "
                "one can't write any more. Let only one of them run"
            )
        elif error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            said += (
                ". Say kafka.transaction.timeout.ms at most as large as the brokers' transaction.max.timeout.ms, and "
                "longer than any batch takes"
            )
        return said


def rows_of(batches: Iterator[pa.RecordBatch], topic: str | None) -> Iterator[Row]:
    """The option topic stands in where a row has none of its own."""
    for batch in batches:
        names = batch.schema.names
        count = batch.num_rows
        nothing: list[Any] = [None] * count

        def column(name: str) -> list[Any]:
            return batch.column(names.index(name)).to_pylist() if name in names else nothing  # noqa: B023

        topics = [topic or each for each in column("topic")] if topic or "topic" in names else []
        if None in topics:
            raise CouldNotWrite("a row has null in the column topic, and there is no option topic")
        headers = [_headers(each) for each in column("headers")] if "headers" in names else nothing
        yield from map(
            Row._make,
            zip(topics, column("key"), column("value"), column("partition"), headers, strict=True),
        )


def _headers(found: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(each["key"], each["value"]) for each in found] if found else None
