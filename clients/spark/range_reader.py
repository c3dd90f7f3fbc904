"""A task's reading: one range of one partition, as Arrow batches.

INVARIANT  a task ends when it has seen everything of its range that is there, and says so when something is not.
PREVENTS   a task that waits for an offset that a marker, an aborted transaction or compaction took, or asks for ever for one that is damaged.
PROVED BY  tests/spark/test_spark_reading.py::test_a_range_ends_at_markers_and_aborted_records
           tests/spark/test_spark_unreadable.py::test_a_task_that_meets_damage_says_so_and_does_not_ask_for_ever
           tests/spark/test_spark_vanished.py::test_a_partition_that_one_broker_does_not_know_is_asked_of_others
           tests/spark/test_spark_range_bounds.py::test_an_end_that_one_broker_tells_is_asked_of_others

Offsets need not be dense: so the end is seen by a record at or after it, or by the partition's own end.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException

from ..transactional import asking_others
from ..transactional.inputs import UNREADABLE
from . import c_library, client_settings, data_loss
from .c_consumer import Columns, Fetched, PartitionConsumer
from .offsets import Range
from .range_bounds import ASK_S, told_by_many
from .schemas import arrow_schema

RECORDS_MAX: Final = 8_192  # in one Arrow batch
RECORDS_FIRST: Final = 1_024  # before it is known how large they are
BYTES_MAX: Final = 16 << 20
WAIT_S: Final = 0.03  # librdkafka fills a batch for as long, whether more comes or not
# Without a record, an end, or a step through what readers don't see something is wrong, whatever is said.
SILENT_S: Final = 120.0
# At an end before ours: a leader that has just changed may know it so late. It is asked for then, and one that does not know
# what was committed before it says so (KIP-207).
SHORT_S: Final = 10.0
GONE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
FATAL: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._AUTHENTICATION,
    KafkaError._FATAL,
)
VANISHED: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
# A broker that is cut off from its cluster, or has just begun, may not know what is there, and says so at once. A new client asks
# any of them first: what `ASKED_MIN` say one after another, for `GONE_S` at least, is believed. Not 30 s each.
NEW_CLIENT: Final[Mapping[str, str]] = {"topic.metadata.propagation.max.ms": "1000"}
UNIT_US: Final = 1_000
LAST_MS: Final = (2**63 - 1) // UNIT_US  # that a column of microseconds holds

log = logging.getLogger("fencepost.clients")


class Unreadable(RuntimeError):
    """Records that are there and can't be read: where, why, and what to do."""


def read_range(
    wanted: Range, client: Mapping[str, str], *, headers: bool, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    reader = _RangeReader(wanted, client, headers=headers, fails=fail_on_data_loss)
    try:
        while not reader.is_over:
            batch = reader.next_batch()
            if batch is not None:
                yield batch
                reader.go_on()
    finally:
        reader.close()


class _RangeReader:
    def __init__(
        self, wanted: Range, client: Mapping[str, str], *, headers: bool, fails: bool
    ) -> None:
        self._wanted, self._fails, self._has_headers = wanted, fails, headers
        self._schema = arrow_schema(headers=headers)
        self._settings = client_settings.of_reader(client)
        self._consumer = PartitionConsumer(self._settings, wanted.topic, wanted.partition)
        self._at = wanted.start
        self._asked_up_to = wanted.start  # by librdkafka
        self._most = RECORDS_FIRST
        self._heard_at = time.monotonic()
        self._asked_at = self._heard_at
        self._is_at_an_end = False  # the partition's, before ours
        self._trouble: KafkaError | None = None  # the last one, which may pass
        self._not_there: int | None = None  # a code of VANISHED, told just now
        self._not_there_at: list[float] = []  # since it was last seen; each by another client
        self.is_over = False
        self._consumer.start(wanted.start)

    def close(self) -> None:
        self._consumer.close()

    def go_on(self) -> None:
        """Whoever takes the batches may be at one for longer than brokers may be silent."""
        self._heard_at = time.monotonic()

    def next_batch(self) -> pa.RecordBatch | None:
        """No more than are left: for as many librdkafka need not wait."""
        most = max(min(self._most, self._wanted.end - self._at), 1)
        with self._consumer.fetch(most, WAIT_S) as fetched:
            batch = self._take(fetched)
            errors = fetched.errors
        for code, offset in errors:
            self._hear(code, offset)
        if not self.is_over and self._not_there is not None:
            self._miss(self._not_there, time.monotonic())
        if not self.is_over:
            self._mind_silence(time.monotonic())
        return batch

    def _mind_silence(self, now_s: float) -> None:
        """An aborted transaction may be larger than what comes in that time: nothing of it is a record here."""
        if self._consumer.asked_up_to > self._asked_up_to:
            self._asked_up_to, self._heard_at = self._consumer.asked_up_to, now_s
            self._not_there_at.clear()
        if self._is_at_an_end and now_s - max(self._heard_at, self._asked_at) > SHORT_S:
            self._asked_at = now_s
            self._check_end()
        if not self.is_over and now_s - self._heard_at > SILENT_S:
            raise TimeoutError(
                f"{self._wanted}: nothing came for {SILENT_S:g} s. Is its leader there, and is an older transaction open "
                "(fencepost txn list)?"
                + ("" if self._trouble is None else f" The last that was heard: {self._trouble}")
            )

    def _check_end(self) -> None:
        """A topic that was made anew and is shorter: nobody will ever write what is missing."""
        try:
            _, last = self._consumer.watermarks(ASK_S)
        except KafkaException as trouble:
            log.warning("%s: where it ends now can't be asked for: %s", self._wanted, trouble)
            return
        if last >= self._wanted.end:
            return
        told = told_by_many(self._new_consumer, self._wanted.end)
        if told is None:
            return
        if told.last >= self._wanted.end:
            self._ask_another()
            return
        data_loss.report(_ends_early(self._wanted, told.last), fails=self._fails)
        self.is_over = True

    def _take(self, fetched: Fetched) -> pa.RecordBatch | None:
        found = fetched.columns(self._wanted.end)
        if found is None:
            return None
        self._heard_at = time.monotonic()
        self._not_there_at.clear()
        self.is_over = found.is_past_the_end
        if not found.count:
            return None
        last = found.offsets[found.count - 1].as_py()
        self._at = last + 1
        self.is_over = self.is_over or self._at >= self._wanted.end
        batch = self._batch(found)
        each = max(batch.nbytes // found.count, 1)
        self._most = max(min(BYTES_MAX // each, RECORDS_MAX), 1)
        return batch

    def _batch(self, found: Columns) -> pa.RecordBatch:
        stamps_ms, types = found.timestamps()
        columns: list[Any] = [
            found.keys(),
            found.values(),
            pa.repeat(pa.scalar(self._wanted.topic, pa.string()), found.count),
            pa.repeat(pa.scalar(self._wanted.partition, pa.int32()), found.count),
            found.offsets,
            pc.multiply(pc.min_element_wise(stamps_ms, LAST_MS), UNIT_US).cast(
                pa.timestamp("us", tz="UTC")
            ),
            # librdkafka counts from 1 (0: not there), Kafka and Spark from 0.
            pc.subtract(types, 1).cast(pa.int32()),
        ]
        if self._has_headers:
            columns.append(pa.array(found.headers(), self._schema.field("headers").type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _hear(self, code: int, offset: int) -> None:
        if code in UNREADABLE:
            # Also when it is over: a record behind ours does not say that all of ours came.
            self._find_unreadable(code, offset)
        elif self.is_over:
            pass
        elif code == KafkaError._PARTITION_EOF:
            # The end as a reader of this isolation level sees it; an end before ours is one of a moment.
            self.is_over = offset >= self._wanted.end
            self._is_at_an_end = True
            self._heard_at = time.monotonic()
            self._not_there_at.clear()
        elif code in GONE:
            self._skip()
        elif code in VANISHED:
            self._not_there = code
        elif code in FATAL:
            raise KafkaException(c_library.error_of(code))
        else:
            self._trouble = c_library.error_of(code)

    def _find_unreadable(self, code: int, offset: int) -> None:
        """Librdkafka asks for more than is wanted here, and tells in their order what came: what is behind our end is not ours."""
        if offset >= self._wanted.end:
            self.is_over = True
            return
        error = c_library.error_of(code)
        what_to_do = (
            "Raise kafka.receive.message.max.bytes and kafka.fetch.message.max.bytes"
            if code == KafkaError.MSG_SIZE_TOO_LARGE
            else "The brokers' logs say what is damaged, and how it is mended; until then a query can only begin behind it (startingOffsets)"
        )
        raise Unreadable(
            f"{self._wanted}: what is there from offset {offset} on can't be read: {error.name()}: {error.str()}. {what_to_do}"
        )

    def _miss(self, code: int, now_s: float) -> None:
        self._not_there = None
        self._heard_at = now_s  # it waits for what it does not find, which is no silence
        self._not_there_at.append(now_s)
        told_by = len(self._not_there_at)
        if (
            told_by >= asking_others.ASKED_MIN
            and now_s - self._not_there_at[0] >= asking_others.GONE_S
        ):
            self._vanished(code)
            return
        self._ask_another()

    def _new_consumer(self) -> PartitionConsumer:
        settings = {**self._settings, **NEW_CLIENT}
        return PartitionConsumer(settings, self._wanted.topic, self._wanted.partition)

    def _ask_another(self) -> None:
        """Whichever broker a new client meets first."""
        time.sleep(asking_others.ASK_AGAIN_S)
        former = self._consumer
        self._consumer = self._new_consumer()
        former.close()
        self._asked_up_to = self._at
        self._is_at_an_end = False
        self._consumer.start(self._at)

    def _vanished(self, code: int) -> None:
        data_loss.report(
            f"{self._wanted}: its topic or partition is not there any more ({c_library.error_of(code).name()}); was it "
            "deleted?",
            fails=self._fails,
            advice=data_loss.NOT_LISTED,
        )
        self.is_over = True

    def _skip(self) -> None:
        """Behind what is gone."""
        wanted = self._wanted
        try:
            first, last = self._consumer.watermarks(ASK_S)
        except KafkaException as trouble:
            self._trouble = trouble.args[0]
            self._ask_another()
            return
        if self._at >= first:  # so it is the end that is said to be before it
            told = told_by_many(self._new_consumer, wanted.end)
            if told is None or (told.first <= self._at and told.last >= wanted.end):
                self._ask_another()
                return
            first, last = told
        if self._at < first:
            data_loss.report(
                f"{wanted}: the partition begins at {first} now, what was before it is gone.",
                fails=self._fails,
            )
        else:
            data_loss.report(_ends_early(wanted, last), fails=self._fails)
        if first >= wanted.end or last <= self._at:
            self.is_over = True
            return
        self._at = max(first, self._at)
        self._consumer.start(self._at)


def _ends_early(wanted: Range, last: int) -> str:
    return f"{wanted}: the partition ends at {last} now; was the topic deleted and created again?"
