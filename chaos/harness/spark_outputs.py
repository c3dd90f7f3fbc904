"""The input of the kill runs, and what their jobs wrote of it: each record once, or `Broken`.

INVARIANT  a run passes only when every record that is committed is one of its input, with its headers, and each is there once.
PREVENTS   a lost or doubled record that nobody looked for.
PROVED BY  tests/spark/test_spark_kill_runs.py::test_a_run_that_lost_or_doubled_a_record_is_broken
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from fencepost.clients.transactional.kept_topics import make_topic

from ..workloads.log_end import log_end
from .spark_run import BATCHES, PARTITIONS

RECORDS: Final = 240
# Of each batch a task has 4,600: more than those of which each row is looked at (EXACT_ROWS of `clients/spark/row_marks.py`).
RECORDS_LARGE: Final = 4_600 * PARTITIONS * BATCHES
OUT_PARTITIONS: Final = 2
SOURCE: Final = "source"
SOURCE_LARGE: Final = "source-large"
HEADER: Final = "number"
READ_S: Final = 30.0
ASK_AGAIN_S: Final = 0.1
ENDED_S: Final = 15.0  # five, on a machine that has nothing else to do


class Broken(Exception):
    """A promise, in a sentence."""


def fill(bootstrap: str) -> None:
    """The input of all runs."""
    create(bootstrap, SOURCE, SOURCE_LARGE, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for topic, records in ((SOURCE, RECORDS), (SOURCE_LARGE, RECORDS_LARGE)):
        for number in range(records):
            text = str(number).encode()
            place, headers = number % PARTITIONS, headers_of(number)
            producer.produce(topic, key=text, value=text, partition=place, headers=headers)
        assert producer.flush(60) == 0, "the input could not be written"


def headers_of(number: int) -> list[tuple[str, bytes]]:
    return [(HEADER, str(number).encode())]


def create(bootstrap: str, *topics: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in topics:
        make_topic(admin, NewTopic(each, partitions))


def check(bootstrap: str, out: str, *, records: int = RECORDS, has_headers: bool = False) -> None:
    for rest in range(2):
        topic = f"{out}-{rest}"
        rows = list(read(bootstrap, topic))
        found = Counter(number for number, _ in rows)
        wanted = Counter(range(rest, records, 2))
        twice = sorted(number for number in found if found[number] > wanted[number])
        lost = sorted(wanted - found)
        if twice or lost:
            raise Broken(
                f"{topic}: {len(twice)} records are there too often ({twice[:5]}…), {len(lost)} are missing "
                f"({lost[:5]}…)"
            )
        other = [n for n, headers in rows if headers != (headers_of(n) if has_headers else [])]
        if other:
            raise Broken(
                f"{topic}: {len(other)} records have other headers than they had ({other[:5]}…)"
            )


def check_nothing_open(bootstrap: str, out: str) -> None:
    """What a batch that failed began is ended, if its driver lives: nobody need run it again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [
        TopicPartition(f"{out}-{rest}", each) for rest in range(2) for each in range(OUT_PARTITIONS)
    ]

    def ends(isolation: IsolationLevel) -> dict[TopicPartition, int]:
        asked = admin.list_offsets(
            dict.fromkeys(places, OffsetSpec.latest()), isolation_level=isolation
        )
        return {each: asked[each].result().offset for each in asked}

    deadline = time.monotonic() + ENDED_S
    while True:
        stable, all_of = ends(IsolationLevel.READ_COMMITTED), ends(IsolationLevel.READ_UNCOMMITTED)
        # What librdkafka gives, and no error, where a leader does not answer.
        is_told = OFFSET_INVALID not in {*stable.values(), *all_of.values()}
        if is_told and stable == all_of:
            return
        if time.monotonic() > deadline:
            if not is_told:
                raise TimeoutError(f"{out}: for {ENDED_S:g} s not all leaders say where it ends")
            raise Broken(
                f"{out}: a batch failed {ENDED_S:g} s ago, and has a transaction open before {all_of}"
            )
        time.sleep(ASK_AGAIN_S)


def read(bootstrap: str, topic: str) -> Iterator[tuple[int, list[tuple[str, bytes]]]]:
    """All that is committed, with its headers; Broken when an open transaction is in the way of the end."""
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
        ends = {each.partition: log_end(plain, each, READ_S) for each in places}
        consumer.assign(places)
        left = {number for number in ends if ends[number] > 0}
        deadline = time.monotonic() + READ_S
        while left:
            if time.monotonic() > deadline:
                raise Broken(f"{topic}: readers do not reach the end of {sorted(left)}")
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    yield int(message.value()), list(message.headers() or [])
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
