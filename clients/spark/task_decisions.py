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
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .asking_again import retrying_for

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


class DecisionRecords:
    """Of one task; asked by one attempt after it has begun."""

    def __init__(self, bootstrap: str, client: Mapping[str, str], topic: str, key: str) -> None:
        self._client = {"bootstrap.servers": bootstrap, **client}
        self._topic = topic
        self._key = key.encode()
        self._partition = NOT_YET

    def committed_up_to(self) -> int:
        """The highest batch that this task has committed; -1 when there is none."""
        self._find_partition()
        place = TopicPartition(self._topic, self._partition, 0)
        settings = {
            **self._client,
            "group.id": "fencepost-spark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        end = self._end(place, settings)
        found = NOT_YET
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        try:
            consumer.assign([place])
            for value in self._values(consumer, end):
                found = max(found, value)
        finally:
            consumer.close()
        return found

    def _values(self, consumer: Consumer, end: int) -> Any:
        """Up to `end`, which an open transaction of another task may keep us from for a moment."""
        deadline = time.monotonic() + READ_S
        while end > 0:
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    if message.key() == self._key:
                        yield json.loads(message.value())["batch"]
                    if message.offset() >= end - 1:
                        return
                elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= end:
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self._topic}-{self._partition} can't be read up to {end} in {READ_S:g} s: an open transaction is "
                    "in the way. It ends with its transaction.timeout.ms"
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

    def _end(self, place: TopicPartition, settings: Mapping[str, Any]) -> int:
        """What was there when we began. A topic that was just made has no leader for a moment."""
        consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
        try:
            _, end = retrying_for(
                CREATE_S,
                lambda: consumer.get_watermark_offsets(place, CALL_S),
                also=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
            )
            return int(end)
        finally:
            consumer.close()

    def _find_partition(self) -> None:
        admin = AdminClient(self._client)
        # A question by name alone would have the brokers make it, as a topic that isn't compacted.
        topics = admin.list_topics(timeout=CREATE_S).topics
        count = len(topics[self._topic].partitions) if self._topic in topics else PARTITIONS
        if self._topic not in topics:
            try:
                made = admin.create_topics([NewTopic(self._topic, PARTITIONS, config=CONFIG)])
                made[self._topic].result(CREATE_S)
            except KafkaException as trouble:
                if trouble.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        self._partition = crc32(self._key) % count
