"""`transactions=task`: for brokers without transaction groups, such as Kafka. Each task commits for itself.

INVARIANT  a task's rows of a batch are committed together with the record that says so, once.
PREVENTS   a task that is run again after it committed, and writes its rows twice.
PROVED BY  tests/spark/test_spark_task_decisions.py::test_a_task_that_committed_is_not_written_again

The record is in a compacted topic: one key for each task of a query, its value the highest batch that it committed.
 1. An attempt begins with its task's one transactional id: earlier attempts are fenced, their transactions over.
 2. Then it reads the record, up to what was there when it began. A batch that was committed is left out.
 3. It writes its rows, then the record, and commits.
What is not promised: the batch as a whole. Readers see a task's rows before those of another, and for longer when the
query fails in between. And a task must get the same rows when it is run again.

A key's partition does not follow from how many there are now, or attempts that see another number would not find it. A
topic that has not the number that it is made with here was made by somebody, or given more since, and may have records of
builds that went by what they saw: all of it is read.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ..transactional.asking_again import retrying_for
from ..transactional.kept_topics import ensure_topic, losing_policy

PARTITIONS: Final = 8
# Compacted soon: an attempt reads a partition of it from the beginning.
CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": "1048576",
    "segment.ms": "600000",
}
CREATE_S: Final = 30.0
READ_S: Final = 120.0  # other tasks' records are open only while they commit
CALL_S: Final = 10.0
NOT_YET: Final = -1


class NotKept(RuntimeError):
    """The topic loses records one day: why, and what to do."""


class DecisionRecords:
    """Of one task; asked by one attempt after it has begun. `formerly` is what older builds called the task."""

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, str],
        topic: str,
        key: str,
        *,
        formerly: str | None = None,
    ) -> None:
        self._client = {"bootstrap.servers": bootstrap, **client}
        self._topic = topic
        self._key = key.encode()
        self._keys = sorted({self._key, (formerly or key).encode()})
        self._partition = NOT_YET

    def committed_up_to(self) -> int:
        """The highest batch that this task has committed; -1 when there is none."""
        count = self._ready()
        self._partition = crc32(self._key) % min(count, PARTITIONS)
        wanted = sorted({crc32(key) % PARTITIONS for key in self._keys})
        places = [
            TopicPartition(self._topic, each, 0)
            for each in (wanted if count == PARTITIONS else range(count))
        ]
        settings = {
            **self._client,
            "group.id": "fencepost-spark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        ends = self._ends(places, settings)
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        try:
            consumer.assign(places)
            return max(self._values(consumer, ends), default=NOT_YET)
        finally:
            consumer.close()

    def _values(self, consumer: Consumer, ends: Mapping[int, int]) -> Iterator[int]:
        """Up to `ends`, which an open transaction of another task may keep us from for a moment."""
        deadline = time.monotonic() + READ_S
        left = {partition for partition in ends if ends[partition] > 0}
        while left:
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    if message.key() in self._keys:
                        yield json.loads(message.value())["batch"]
                    next_offset = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    next_offset = message.offset()
                else:
                    continue
                if next_offset >= ends[message.partition()]:
                    left.discard(message.partition())
            if left and time.monotonic() > deadline:
                which = min(left)
                raise TimeoutError(
                    f"{self._topic}-{which} can't be read up to {ends[which]} in {READ_S:g} s: an open transaction is in the "
                    "way. It ends with its transaction.timeout.ms"
                )

    def record(self, batch: int) -> dict[str, Any]:
        """What to produce, in the transaction of the rows."""
        value = json.dumps({"batch": batch}).encode()
        return {
            "topic": self._topic,
            "partition": self._partition,
            "key": self._key,
            "value": value,
        }

    def _ends(self, places: list[TopicPartition], settings: Mapping[str, Any]) -> dict[int, int]:
        """What was there when we began. A topic that was just made has no leader for a moment."""
        consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})

        def end(place: TopicPartition) -> int:
            _, found = retrying_for(
                CREATE_S,
                lambda: consumer.get_watermark_offsets(place, CALL_S),
                also=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
            )
            return int(found)

        try:
            return {place.partition: end(place) for place in places}
        finally:
            consumer.close()

    def _ready(self) -> int:
        """How many partitions the topic has. It is there, and keeps what is in it."""
        count = ensure_topic(self._client, self._topic, PARTITIONS, config=CONFIG)
        policy = losing_policy(self._client, self._topic)
        if policy is not None:
            raise NotKept(
                f"the topic {self._topic} has cleanup.policy={policy}: the records of what was written would be deleted one "
                "day, and their batches written again. Set it to compact, or name another topic with decisionTopic. Nothing "
                "of this task was written"
            )
        return count
