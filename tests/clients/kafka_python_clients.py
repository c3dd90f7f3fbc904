"""What the suites of kafka-python share."""

import time
import warnings
from contextlib import closing, contextmanager

from brokers import WAIT_S

with warnings.catch_warnings():  # it loads its schemas in a way that Python no longer likes
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

__all__ = [
    "KafkaProducer",
    "OffsetAndMetadata",
    "TopicPartition",
    "consumer_of",
    "reader_of",
    "receive",
]


@contextmanager
def consumer_of(bootstrap: str, *topics: str, group: str | None = None, **options):
    in_group = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200} if group else {}
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | in_group | options
    consumer = KafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **settings)
    with closing(consumer):
        yield consumer


@contextmanager
def reader_of(bootstrap: str, topic: str, partitions: int = 1, **options):
    with consumer_of(bootstrap, **options) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        yield consumer


def receive(consumer: KafkaConsumer, count: int) -> list:
    got: list = []
    deadline = time.monotonic() + WAIT_S
    while len(got) < count and time.monotonic() < deadline:
        # A poll that ends between SyncGroup and its answer makes this client forget its assignment.
        for records in consumer.poll(timeout_ms=5_000, max_records=count - len(got)).values():
            got += records
    assert len(got) == count, f"{len(got)} of {count} records came"
    return got
