"""Where a read begins and ends, how many tasks it has, and what a query learns while it runs: a real Spark, a real node."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from spark_topics import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
    pytest.mark.timeout(300),  # a JVM on a machine that has other things to do
]
SEEN_S = 120.0


def batch(spark: Any, node: Served, topic: str, **options: Any) -> Any:
    reader = spark.read.format("fencepost").options(**node.reading, subscribe=topic)
    return reader.options(**options).load()


def values(rows: Any) -> list[str]:
    return sorted(row.value.decode() for row in rows.select("value").collect())


@pytest.fixture
def timed(node: Served, topic: str) -> str:
    """A record a second in partition 0, from 1 s to 10 s; one at 20 s in partition 1."""
    for n in range(10):
        node.write(topic, [str(n)], timestamp=1_000 * (n + 1))
    node.write(topic, ["late"], partition=1, timestamp=20_000)
    return topic


def test_a_batch_ends_before_the_first_record_of_a_time(
    spark: Any, node: Served, timed: str
) -> None:
    """In a partition that has nothing so young it ends where that ends."""
    until = batch(spark, node, timed, endingTimestamp=5_500)
    assert values(until) == ["0", "1", "2", "3", "4"]
    assert len(values(batch(spark, node, timed, endingTimestamp=15_000))) == 10


def test_each_partition_has_times_of_its_own(spark: Any, node: Served, timed: str) -> None:
    some = batch(
        spark,
        node,
        timed,
        startingOffsetsByTimestamp=json.dumps({timed: {"0": 3_000, "1": 0}}),
        endingOffsetsByTimestamp=json.dumps({timed: {"0": 6_001, "1": 20_001}}),
    )
    assert values(some) == ["2", "3", "4", "5", "late"]
    too_late = json.dumps({timed: {"0": 10_001, "1": 0}})
    with pytest.raises(Exception, match=f"{timed}-0 has no record from 10001 ms on, which start"):
        values(batch(spark, node, timed, startingOffsetsByTimestamp=too_late))
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    found = batch(spark, node, timed, startingOffsetsByTimestamp=too_late, **latest)
    assert values(found) == ["late"]


def test_a_range_is_split_into_tasks_that_read_all_of_it_once(
    spark: Any, node: Served, topic: str
) -> None:
    numbers = [f"{n:02}" for n in range(40)]
    node.write(topic, numbers[:30])
    node.write(topic, numbers[30:], partition=1)
    for option, tasks in (
        ({"maxRecordsPerPartition": 8}, [7, 8, 7, 8, 5, 5]),
        ({"minPartitions": 4}, [10, 10, 10, 10]),
    ):
        rows = batch(spark, node, topic, **option)
        assert values(rows) == numbers
        counted = rows.selectExpr("spark_partition_id() as task").groupBy("task").count()
        assert [row["count"] for row in counted.orderBy("task").collect()] == tasks


def test_columns_of_one_s_own_are_refused(spark: Any, node: Served, topic: str) -> None:
    reader = spark.read.format("fencepost").options(**node.reading, subscribe=topic)
    with pytest.raises(
        Exception,
        match=r"the columns are key, value, .* select what you need\. It asked for value, number",
    ):
        reader.schema("value binary, number int").load().collect()
    with pytest.raises(Exception, match=r"the columns are .*, headers, in this order"):
        reader.schema("key binary").option("includeHeaders", True).load().collect()


def test_too_little_waits_in_a_query_that_runs_and_in_none_with_one_batch(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    """Three runs with `Trigger.Once` read nothing: Spark hands them the limit that says all, which was the default, too."""
    reader = spark.readStream.format("fencepost").options(**node.reading, subscribe=topic)
    rows = reader.options(startingOffsets="earliest", minOffsetsPerTrigger=100).load()
    sizes: list[int] = []

    def keep(batch: Any, _: int) -> None:
        sizes.append(batch.count())

    def begin(**trigger: Any) -> Any:
        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
        return writer.trigger(**trigger).start()

    for count in (25, 3):
        node.write(topic, ["v"] * count)
        begin(once=True).awaitTermination()
    assert sizes == [25, 3]
    node.write(topic, ["v"] * 7)
    query = begin(processingTime="100 milliseconds")
    try:
        wait_for(lambda: len(sizes) == 3, query, sizes)
        node.write(topic, ["v"] * 40)
        query.processAllAvailable()  # it has looked
        assert sizes == [25, 3, 7]
        node.write(topic, ["v"] * 60)
        wait_for(lambda: len(sizes) == 4, query, sizes)
    finally:
        query.stop()
    assert sizes == [25, 3, 7, 100]


def wait_for(holds: Callable[[], bool], query: Any, seen: object) -> None:
    deadline = time.monotonic() + SEEN_S
    while not holds():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def test_a_query_that_runs_finds_a_partition_that_its_topic_was_given(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    seen: list[tuple[int, str]] = []

    def keep(rows: Any, _: int) -> None:
        seen.extend((row.partition, row.value.decode()) for row in rows.collect())

    def until_seen(wanted: list[tuple[int, str]]) -> None:
        wait_for(lambda: sorted(seen) == wanted, query, seen)

    reader = spark.readStream.format("fencepost").options(**node.reading, subscribe=topic)
    rows = reader.options(startingOffsets="earliest", maxRecordsPerPartition=2).load()
    node.write(topic, ["a", "b", "c"])
    query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).start()
    try:
        until_seen([(0, "a"), (0, "b"), (0, "c")])
        node.grow(topic, 3)
        node.write(topic, ["d", "e"], partition=2)
        until_seen([(0, "a"), (0, "b"), (0, "c"), (2, "d"), (2, "e")])
    finally:
        query.stop()
