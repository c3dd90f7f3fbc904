"""The input of the kill runs, and what their jobs wrote of it: each record once, or `Broken`.

INVARIANT  a run passes only when every record that is committed is one of its input, and each is there once.
PREVENTS   a lost or doubled record that nobody looked for.
PROVED BY  tests/spark/test_spark_kill_runs.py::test_a_run_that_lost_or_doubled_a_record_is_broken
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .spark_run import PARTITIONS

RECORDS: Final = 240
OUT_PARTITIONS: Final = 2
SOURCE: Final = "source"
READ_S: Final = 30.0


class Broken(Exception):
    """A promise, in a sentence."""


def fill(bootstrap: str) -> None:
    """The input of all runs."""
    create(bootstrap, SOURCE, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        text = str(number).encode()
        producer.produce(SOURCE, key=text, value=text, partition=number % PARTITIONS)
    assert producer.flush(60) == 0, "the input could not be written"


def create(bootstrap: str, *topics: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(each, partitions) for each in topics])
    for each in made.values():
        each.result(30)


def check(bootstrap: str, out: str) -> None:
    for rest in range(2):
        topic = f"{out}-{rest}"
        found = Counter(read(bootstrap, topic))
        wanted = Counter(range(rest, RECORDS, 2))
        twice = sorted(number for number in found if found[number] > wanted[number])
        lost = sorted(wanted - found)
        if twice or lost:
            raise Broken(
                f"{topic}: {len(twice)} records are there too often ({twice[:5]}…), {len(lost)} are missing "
                f"({lost[:5]}…)"
            )


def read(bootstrap: str, topic: str) -> Iterator[int]:
    """All that is committed; TimeoutError when an open transaction is in the way of the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "spark-kill-runs",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    plain = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "spark-kill-runs",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        places = [TopicPartition(topic, each, 0) for each in range(OUT_PARTITIONS)]
        ends = {each.partition: plain.get_watermark_offsets(each, 20)[1] for each in places}
        consumer.assign(places)
        left = {number for number in ends if ends[number] > 0}
        deadline = time.monotonic() + READ_S
        while left:
            if time.monotonic() > deadline:
                raise Broken(f"{topic}: readers do not reach the end of {sorted(left)}")
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    yield int(message.value())
                    if message.offset() >= ends[message.partition()] - 1:
                        left.discard(message.partition())
                elif (
                    error.code() == KafkaError._PARTITION_EOF
                    and message.offset() >= ends[message.partition()]
                ):
                    left.discard(message.partition())
    finally:
        consumer.close()
        plain.close()
