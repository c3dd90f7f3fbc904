"""Rows and batches of them that a topic, or librdkafka, finds too large: on a real node, without Spark in between."""

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from fencepost.clients.binlog.reading import read_to_end
from fencepost.clients.spark.options import WriteOptions
from fencepost.clients.spark.sink_names import JOB, Task, member_name, place_in_batch
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter
from fencepost.clients.spark.writers import _write
from spark_topics import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.needs("python:pyspark", "python:pyarrow"),
]
LIMIT = 50_000
ROWS = 5_000
TASK = Task(0, 0, "", None)


@pytest.fixture
def strict(node: Served, fresh: Callable[[str], str]) -> str:
    name = fresh("strict")
    node.create(name, max_message_bytes=str(LIMIT))
    return name


def rows_of(topic: str, size: int = 100) -> pa.RecordBatch:
    """That no compression makes smaller."""
    drawn = random.Random(7)
    values = [drawn.randbytes(size) for _ in range(ROWS)]
    return pa.record_batch({"value": values, "topic": [topic] * ROWS})


def planned(node: Served, **said: str) -> WriteOptions:
    """As Spark's driver plans a write."""
    from fencepost.clients.spark.source import FencepostDataSource
    from pyspark.sql.types import StructType

    schema = StructType().add("value", "binary").add("topic", "string")
    given = {name.replace("__", "."): said[name] for name in said}
    options: Any = {key.lower(): value for key, value in (node.writing | given).items()}
    writer: Any = FencepostDataSource(options).writer(schema, overwrite=False)
    return writer._options


def write(options: WriteOptions, rows: pa.RecordBatch, name: str) -> None:
    _write(options, place_in_batch(TASK, None, None, name, options.topic), iter([rows]))


@pytest.mark.parametrize("transactions", ["group", "task"])
def test_small_rows_go_to_a_topic_whose_batches_must_be_smaller_than_ours(
    node: Served, strict: str, fresh: Callable[[str], str], transactions: str
) -> None:
    decisions = fresh("decisions")
    options = planned(node, topic=strict, transactions=transactions, decisionTopic=decisions)
    write(options, rows_of(strict), fresh("job"))
    assert options.client["batch.size"] == str(LIMIT)
    if transactions == "task":
        found = read_to_end({"bootstrap.servers": node.bootstrap}, strict)
        assert len(list(found)) == ROWS


def test_what_the_user_has_said_of_batches_stays(node: Served, strict: str) -> None:
    assert planned(node, topic=strict, kafka__batch__size="400000").client["batch.size"] == "400000"


def test_a_topic_that_takes_our_batches_or_says_nothing_changes_nothing(
    node: Served, topic: str
) -> None:
    for name in (topic, f"{topic}.not-there"):
        assert "batch.size" not in planned(node, topic=name).client


@pytest.mark.parametrize("transactions", ["group", "task"])
def test_a_batch_that_is_too_large_is_not_taken_for_a_row_that_is(
    node: Served, strict: str, fresh: Callable[[str], str], transactions: str
) -> None:
    """Rows name their topics, so the driver could not ask."""
    options = planned(node, transactions=transactions, decisionTopic=fresh("decisions"))
    said = (
        r"MSG_SIZE_TOO_LARGE: .* has a key of 0 bytes and a value of 100, which .* takes: it is the batch that it was sent in"
        rf"\. Say kafka\.batch\.size={LIMIT}, .* it is 1000000 now"
    )
    with pytest.raises(CouldNotWrite, match=said):
        write(options, rows_of(strict), fresh("job"))


def test_a_row_over_the_topic_s_limit_is_told_with_its_sizes_and_the_limit(
    node: Served, strict: str, fresh: Callable[[str], str]
) -> None:
    drawn = random.Random(8)
    rows = pa.record_batch({"key": [b"", drawn.randbytes(60_000)], "value": [b"fits", b"v"]})
    said = "a key of 60,000 bytes and a value of 1, and .* takes 50,000 .*: raise max.message.bytes"
    with pytest.raises(CouldNotWrite, match=said):
        write(planned(node, topic=strict), rows, fresh("job"))


def test_a_row_over_librdkafka_s_limit_is_told_with_its_key_s_size_too(
    node: Served, topic: str
) -> None:
    rows = pa.record_batch({"key": ["k", "k" * 2_000_000], "value": ["fits", "v"]})
    with closing(MemberWriter(node.bootstrap, f"{topic}::{member_name(JOB, TASK)}", {})) as writer:
        writer.begin()
        said = r"Row 2 of the task has a key of 2,000,000 bytes and a value of 1: raise kafka\.mess"
        with pytest.raises(CouldNotWrite, match=said) as refused:
            writer.write(rows, topic)
        writer.give_up()
    assert "batch" not in str(refused.value)
