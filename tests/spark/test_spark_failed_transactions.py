"""Why a task's transaction failed: librdkafka says it once, and then of each row that it was purged, or that the state is wrong.

Brokers that refuse what a test wants are librdkafka's own, in its process; what a task finds at a real node is beside that.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from fencepost.clients.spark.c_library import INT, POINTER, SIZE, library
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter
from spark_topics import Served, column_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
ADD_PARTITIONS: Final = 24
SOON_S: Final = 40.0


@contextmanager
def begun(bootstrap: str, name: str, **client: str) -> Iterator[MemberWriter]:
    settings = {key.replace("_", "."): value for key, value in client.items()}
    with closing(MemberWriter(bootstrap, name, settings)) as writer:
        writer.begin()
        yield writer


def refuse(writer: MemberWriter, api_key: int, code: int) -> None:
    """The next request of this kind, at the brokers that librdkafka plays."""
    c = library()
    c.rd_kafka_handle_mock_cluster.restype = POINTER
    c.rd_kafka_handle_mock_cluster.argtypes = [POINTER]
    push = c.rd_kafka_mock_push_request_errors_array
    push.restype, push.argtypes = None, [POINTER, ctypes.c_int16, SIZE, POINTER]
    codes = (INT * 1)(code)
    push(c.rd_kafka_handle_mock_cluster(writer.producer._handle), api_key, 1, codes)


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON_S
    while not what():
        assert time.monotonic() < deadline, "it does not happen"


def test_rows_that_were_purged_are_told_what_their_transaction_failed_of() -> None:
    """1. The coordinator does not let this user write there. 2. Rows were never sent: librdkafka purges them, and says so of each."""
    with begun("unused", "g::m", test_mock_num_brokers="1") as writer:
        refuse(writer, ADD_PARTITIONS, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        writer.write(column_of("a", "b"), "out")
        with pytest.raises(
            CouldNotWrite, match="could not write to out: TOPIC_AUTHORIZATION_FAILED"
        ):
            writer.settle()
        assert writer.producer.failed[0][0].code() == KafkaError._PURGE_QUEUE


def test_rows_behind_one_that_was_refused_are_told_why_nothing_more_is_taken(
    node: Served, fresh: Callable[[str], str]
) -> None:
    """1. The broker refuses a row. 2. Before anybody has asked for that the next rows come, which librdkafka does not take any more."""
    strict = fresh("strict")
    node.create(strict, max_message_bytes="500")
    with begun(node.bootstrap, f"{strict}::m") as writer:
        writer.write(column_of("".join(map(chr, range(40, 2_000)))), strict)
        wait_for(writer.producer.failure)
        with pytest.raises(CouldNotWrite, match=r"MSG_SIZE_TOO_LARGE: .* raise max.message.bytes"):
            writer.write(column_of("b"), strict)
        writer.give_up()
        assert node.committed(strict) == []


def test_a_task_that_took_longer_than_its_transaction_may_is_told_of_that_too(
    node: Served, topic: str
) -> None:
    with begun(node.bootstrap, f"{topic}::m", transaction_timeout_ms="1000") as writer:
        writer.write(column_of("a"), topic)
        writer.settle()
        assert node.committed(topic) == [], (
            "a reader gets past it when its coordinator has aborted it"
        )
        rows = pa.record_batch({"value": ["b"], "partition": pa.array([0], pa.int32())})
        said = (
            r"_FENCED: .* or its transaction was open for longer than kafka.transaction.timeout.ms"
        )
        with pytest.raises(CouldNotWrite, match=f"(?i){said}"):
            writer.write(rows, topic)
            writer.settle()
