"""What the suites of kafka-python share."""

import gc
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from brokers import WAIT_S

with warnings.catch_warnings():  # it loads its schemas in a way that Python no longer likes
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

__all__ = [
    "KafkaProducer",
    "OffsetAndMetadata",
    "TopicPartition",
    "LEAVES_SOCKETS",
    "consumer_of",
    "reader_of",
    "receive",
    "sockets_left",
]

# Of a connection that is given up while it is made, kafka-python 3.0 leaves the socket to Python's collector (`create_connection`):
# whichever test runs when that looks would fail for it.
LEAVES_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True, scope="module")
def sockets_left() -> Iterator[None]:
    """They are collected where they were left, and trouble no later suite."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


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
