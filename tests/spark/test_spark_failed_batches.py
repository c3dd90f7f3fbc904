"""A batch that fails leaves nothing open: readers would wait behind it for 15 minutes, though nobody runs it again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fencepost.chaos.harness.spark_job import ROWS_AT_ONCE, SLOW
from fencepost.clients.transactional import AdminApi, TransactionGroup
from spark_topics import Served
from support.alone import held_to

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
    pytest.mark.timeout(300),  # a JVM on a machine that has other things to do
]
ENDED_S = held_to(10.0)  # README: five, of a driver that is not kept waiting
# More than Spark's buffer for a task's Python holds: so it hands rows over as they come.
LARGE = "x" * 70_000


@pytest.fixture
def slowly(spark: Any) -> Any:
    before = spark.conf.get(ROWS_AT_ONCE)
    spark.conf.set(ROWS_AT_ONCE, "2")
    yield spark
    spark.conf.set(ROWS_AT_ONCE, before)


@pytest.mark.timed
def test_a_stream_of_which_one_task_fails_ends_what_the_others_are_writing(
    slowly: Any, node: Served, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """No task has told its driver anything: one failed, and the rows of the other were cut off in the middle."""
    source, out = fresh("in"), fresh("out")
    for each in (source, out):
        node.create(each, partitions=2)
    node.write(source, [f"{LARGE}{n}" for n in range(300)], partition=1)
    node.write(source, [*["ok"] * 10, "poison"])
    reader = slowly.readStream.format("fencepost").options(**node.reading, subscribe=source)
    rows = reader.option("startingOffsets", "earliest").load().where(SLOW)
    poisoned = rows.selectExpr(
        "if(cast(value as string) = 'poison', raise_error('poison'), value) as value"
    )
    options = {"topic": out, "checkpointLocation": str(tmp_path)}
    writer = poisoned.writeStream.format("fencepost").options(**node.writing, **options)
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="poison"):
        query.awaitTermination()
    group = TransactionGroup(f"spark-{query.id}", AdminApi(node.admin_url))
    deadline = time.monotonic() + ENDED_S
    while found := group.open_members():
        assert time.monotonic() < deadline, f"{sorted(found)} stay open"
        time.sleep(0.1)
    assert node.committed(out) == []
