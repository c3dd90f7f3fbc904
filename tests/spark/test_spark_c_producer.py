"""Whole columns of rows to librdkafka: all of them are there, in their order, or it is told which was refused."""

import json
import random
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from fencepost.clients.spark import c_producer
from fencepost.clients.spark.c_producer import ColumnProducer, NotTaken
from spark_topics import Served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def make(node: Served, fresh: Callable[[str], str]) -> Iterator[Callable[..., ColumnProducer]]:
    made: list[ColumnProducer] = []

    def one(**settings: Any) -> ColumnProducer:
        chosen = {name.replace("_", "."): value for name, value in settings.items()}
        given = {"bootstrap.servers": node.bootstrap, "transactional.id": fresh("id"), **chosen}
        producer = ColumnProducer({"statistics.interval.ms": 20, **given})
        made.append(producer)
        producer.init_transactions(20)
        producer.begin_transaction()
        return producer

    yield one
    for each in made:
        each.close()


def test_what_librdkafka_tells_does_not_pile_up_while_a_task_waits_for_its_rows(
    make: Callable[..., ColumnProducer],
) -> None:
    """Statistics come every 20 ms, and wait in memory until they are read."""
    producer = make()
    deadline = time.monotonic() + 30
    while (
        producer.identity(0) is None
    ):  # nobody polls: who it is comes from statistics that were read all the same
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_librdkafka_tells_of_each_partition_is_not_read_by_who_knows_who_it_is(
    make: Callable[..., ColumnProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty times a second: of a topic with 2,000 partitions that was a third of a core, for as long as a task wrote."""
    told, read = [], []
    hear = ColumnProducer._on_statistics

    def heard(*said: Any) -> int:
        told.append(said)
        return hear(*said)

    def loads(text: bytes) -> Any:
        read.append(text)
        return json.loads(text)

    monkeypatch.setattr(ColumnProducer, "_on_statistics", heard)
    monkeypatch.setattr(c_producer, "json", SimpleNamespace(loads=loads))
    producer = make()
    assert producer.identity(30) is not None
    known = len(told), len(read)
    deadline = time.monotonic() + 30
    while len(told) < known[0] + 10:
        assert time.monotonic() < deadline
        producer.poll(0.02)
    assert len(read) == known[1]


def read(node: Served, topic: str, count: int) -> list[tuple[Any, ...]]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reads"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[Any, ...]] = []
    while len(found) < count:
        for each in consumer.consume(count - len(found), 5.0):
            assert each.error() is None
            found.append((each.key(), each.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_columns_are_written_row_by_row_in_their_order(
    node: Served, make: Callable[..., ColumnProducer], topic: str, kind: pa.DataType
) -> None:
    """More rows than librdkafka's queue takes at once."""
    rng = random.Random(3)
    keys = [None if rng.random() < 0.3 else rng.randbytes(rng.randrange(9)) for _ in range(4_000)]
    values = [None if rng.random() < 0.1 else rng.randbytes(rng.randrange(90)) for _ in keys]
    producer = make(queue_buffering_max_messages=500)
    key, value = pa.array(keys, kind), pa.array(values, kind)
    partition = pa.array([0] * len(keys), pa.int32())
    for first in (0, 1_500):  # a slice begins in the middle of its buffers
        each = slice(first, 1_500 if first == 0 else len(keys))
        producer.produce(topic, key[each], value[each], partition[each])
    assert producer.flush(60)
    assert producer.failed == []
    producer.commit_transaction(20)
    assert read(node, topic, len(keys)) == list(zip(keys, values, strict=True))


def test_a_row_that_is_too_large_is_named(make: Callable[..., ColumnProducer], topic: str) -> None:
    values = pa.array([b"small", b"x" * 3_000, b"small"])
    with pytest.raises(NotTaken) as refused:
        make(message_max_bytes=2_000).produce(topic, None, values, None)
    assert refused.value.row == 1
    assert refused.value.error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_row_that_the_broker_refuses_is_told(
    node: Served, make: Callable[..., ColumnProducer], fresh: Callable[[str], str]
) -> None:
    strict = fresh("strict")
    node.create(strict, max_message_bytes="500")
    producer = make()
    producer.produce(strict, None, pa.array([b"fits", b"x" * 3_000]), None)
    assert producer.flush(30)
    error, whereto, *sizes = producer.failed[0]
    assert (error.code(), whereto) == (KafkaError.MSG_SIZE_TOO_LARGE, strict)
    assert sizes in ([0, 4], [0, 3_000])


def test_a_wrong_setting_is_told(node: Served) -> None:
    from confluent_kafka import KafkaException

    with pytest.raises(KafkaException, match="No such configuration property"):
        ColumnProducer({"bootstrap.servers": node.bootstrap, "linger.mss": 5})
