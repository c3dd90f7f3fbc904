"""Whole fetches as Arrow columns, beside what librdkafka's own Python objects say of each message."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from fencepost.clients.spark.c_consumer import Columns
from fencepost.clients.spark.offsets import Range
from fencepost.clients.spark.range_reader import read_range
from spark_topics import Served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
COUNT = 3_000


def random_messages(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)

    def text(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(most))

    return [
        {
            "key": text(20),
            "value": text(rng.choice([4, 300, 5_000])),
            "timestamp": 1_700_000_000_000 + rng.randrange(10**9),
            "headers": [("h", text(9)), ("", b"x")] if rng.random() < 0.3 else None,
        }
        for _ in range(COUNT)
    ]


@pytest.fixture(scope="module")
def filled(node: Served) -> str:
    topic = "columns"
    node.create(topic)
    producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": "lz4"})
    for each in random_messages(7):
        producer.produce(topic, partition=0, **{k: v for k, v in each.items() if v is not None})
        producer.poll(0)
    assert producer.flush(30) == 0
    return topic


def plainly(node: Served, topic: str, first: int, end: int) -> list[tuple[Any, ...]]:
    """The slow twin: a Python object for each message."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "twin"})
    consumer.assign([TopicPartition(topic, 0, first)])
    found = []
    while len(found) < end - first:
        for each in consumer.consume(end - first - len(found), 5.0):
            assert each.error() is None
            kind, ms = each.timestamp()
            headers = [(k, v) for k, v in each.headers() or []] or None
            found.append((each.key(), each.value(), each.offset(), ms, kind - 1, headers))
    consumer.close()
    return found


def as_columns(node: Served, topic: str, first: int, end: int) -> list[tuple[Any, ...]]:
    client = {"bootstrap.servers": node.bootstrap, "isolation.level": "read_committed"}
    wanted = Range(topic, 0, first, end)
    found = []
    for batch in read_range(wanted, client, headers=True, fail_on_data_loss=True):
        batch.validate(full=True)
        at = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for row, us in zip(batch.to_pylist(), at, strict=True):
            headers = [(each["key"], each["value"]) for each in row["headers"] or []] or None
            assert (row["topic"], row["partition"]) == (topic, 0)
            key, value, kind = row["key"], row["value"], row["timestampType"]
            found.append((key, value, row["offset"], us // 1000, kind, headers))
    return found


@pytest.mark.parametrize(("first", "end"), [(0, COUNT), (1_234, 1_235), (17, 2_900)])
def test_columns_are_what_librdkafka_says_of_each_message(
    node: Served, filled: str, first: int, end: int
) -> None:
    assert as_columns(node, filled, first, end) == plainly(node, filled, first, end)


def test_a_message_of_another_shape_is_asked_for_its_timestamp(
    node: Served, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencepost.clients.spark import c_consumer

    asked: list[Columns] = []
    plain = Columns._timestamps_one_by_one

    def one_by_one(columns: Columns) -> Any:
        asked.append(columns)
        return plain(columns)

    monkeypatch.setattr(Columns, "_timestamps_one_by_one", one_by_one)
    monkeypatch.setattr(c_consumer, "TIMESTAMP_WORD", c_consumer.OFFSET_WORD)
    assert as_columns(node, filled, 0, 500) == plainly(node, filled, 0, 500)
    assert asked


def test_values_that_are_all_null_or_all_empty_stay_so(
    node: Served, fresh: Callable[[str], str]
) -> None:
    for value in (None, b""):
        topic = fresh("topic")
        node.create(topic)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for _ in range(5):
            producer.produce(topic, value=value, partition=0)
        assert producer.flush(20) == 0
        assert [row[:2] for row in as_columns(node, topic, 0, 5)] == [(None, value)] * 5


def test_a_time_that_no_column_holds_is_the_last_one_that_it_does(
    node: Served, fresh: Callable[[str], str]
) -> None:
    """Nanoseconds, and worse, that a producer took for milliseconds: in microseconds they are no 64 bits."""
    topic = fresh("topic")
    node.create(topic, message_timestamp_after_max_ms=str(2**63 - 1))
    last_ms = (2**63 - 1) // 1_000
    for at_ms in (last_ms, last_ms + 1, 1_700_000_000_000_000_000, 2**63 - 1):
        node.write(topic, ["v"], timestamp=at_ms)
    client = {"bootstrap.servers": node.bootstrap}
    read = read_range(Range(topic, 0, 0, 4), client, headers=False, fail_on_data_loss=True)
    found = [us for each in read for us in each.column("timestamp").cast(pa.int64()).to_pylist()]
    assert found == [last_ms * 1_000] * 4
