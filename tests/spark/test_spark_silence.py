"""What a task takes for silence, and what for a sign of life: brokers that are away, an aborted transaction, a slow neighbour."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from fencepost.clients.spark import range_reader
from fencepost.clients.spark.c_consumer import PartitionConsumer
from fencepost.clients.spark.offsets import Range
from fencepost.clients.spark.range_reader import read_range
from spark_topics import Served
from support.module_clock import set_clock

SOON_S = 40.0


def test_what_librdkafka_says_of_no_message_is_heard() -> None:
    """A broker that is not there. A wrong password is told in the same way."""
    codes = set()
    deadline = time.monotonic() + SOON_S
    with closing(PartitionConsumer({"bootstrap.servers": "127.0.0.1:1"}, "t", 0)) as consumer:
        consumer.start(0)
        while KafkaError._ALL_BROKERS_DOWN not in codes and time.monotonic() < deadline:
            with consumer.fetch(10, 0.03) as fetched:
                codes |= {code for code, _ in fetched.errors}
    assert KafkaError._ALL_BROKERS_DOWN in codes


def test_silence_is_told_with_the_last_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "SILENT_S", 2.0)
    away = read_range(
        Range("t", 0, 0, 5),
        {"bootstrap.servers": "127.0.0.1:1"},
        headers=False,
        fail_on_data_loss=True,
    )
    said = r"nothing came for 2 s\. .* The last that was heard: .*(_TRANSPORT|_ALL_BROKERS_DOWN)"
    with pytest.raises(TimeoutError, match=said):
        next(away)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_consumer_says_how_far_it_is_in_what_no_reader_sees(node: Served, topic: str) -> None:
    node.transaction(topic, list("abc"), "abort", topic)  # and its marker
    client = {"bootstrap.servers": node.bootstrap, "isolation.level": "read_committed"}
    deadline = time.monotonic() + SOON_S
    consumer = PartitionConsumer({**client, "statistics.interval.ms": 20}, topic, 0)
    with closing(consumer):
        consumer.start(0)
        while consumer.asked_up_to < 4 and time.monotonic() < deadline:
            with consumer.fetch(10, 0.03) as fetched:
                assert fetched.columns(4) is None
        assert consumer.asked_up_to == 4


class Fetched:
    """One record at this offset, or nothing."""

    errors: tuple[()] = ()

    def __init__(self, offset: int | None) -> None:
        self._offset = offset
        self.count = 0 if offset is None else 1

    def columns(self, _end: int) -> Any:
        return None if self._offset is None else self

    is_past_the_end = False

    @property
    def offsets(self) -> pa.Array:
        return pa.array([self._offset], pa.int64())

    def values(self) -> pa.Array:
        return pa.array([b"v"], pa.binary())

    keys = values

    def timestamps(self) -> tuple[pa.Array, pa.Array]:
        return pa.array([1], pa.int64()), pa.array([1], pa.int64())


class Consumer:
    """Brings a record, nothing for a while, and the last one. A second passes with each look."""

    def __init__(self, nothing_s: int, step: int) -> None:
        self._nothing_s, self._step = nothing_s, step
        self.now_s, self.asked_up_to, self.looks = 0.0, 0, 0

    @contextmanager
    def fetch(self, _most: int, _wait_s: float) -> Iterator[Fetched]:
        self.looks, self.now_s = self.looks + 1, self.now_s + 1.0
        self.asked_up_to += self._step
        is_over = self.looks > self._nothing_s + 1
        yield Fetched(0 if self.looks == 1 else 9 if is_over else None)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def start(self, _offset: int) -> None: ...

    def close(self) -> None: ...


def read(
    monkeypatch: pytest.MonkeyPatch, consumer: Consumer, taken_for_s: float = 0.0
) -> list[int]:
    monkeypatch.setattr(range_reader, "PartitionConsumer", lambda *_: consumer)
    set_clock(monkeypatch, range_reader, now_s=lambda: consumer.now_s, sleep=consumer.sleep)
    found = []
    for batch in read_range(Range("t", 0, 0, 10), {}, headers=False, fail_on_data_loss=True):
        found += batch.column("offset").to_pylist()
        consumer.now_s += taken_for_s
    return found


def test_an_aborted_transaction_that_is_read_for_long_is_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a bulk load that failed readers are sent all, and see nothing: some gigabytes, over a slow network or with a quota."""
    assert read(monkeypatch, Consumer(nothing_s=500, step=1)) == [0, 9]
    with pytest.raises(TimeoutError, match="nothing came for 120 s"):
        read(monkeypatch, Consumer(nothing_s=500, step=0))


def test_who_takes_long_with_a_batch_does_not_find_that_the_brokers_were_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read(monkeypatch, Consumer(nothing_s=3, step=0), taken_for_s=500.0) == [0, 9]
