"""A Spark query in and out of a real Kafka, exactly once: `transactions=task`, for brokers without groups."""

from collections.abc import Callable
from typing import Any

import pytest
from spark_topics import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
    pytest.mark.timeout(300),  # JVMs on a machine that has other things to do
]


def test_a_stream_reads_and_writes_a_real_kafka_and_knows_its_topics(
    spark: Any, kafka: Served, fresh: Callable[[str], str], tmp_path: Any
) -> None:
    source, out, decisions = fresh("in"), fresh("out"), fresh("decisions")

    def run() -> None:
        reader = spark.readStream.format("fencepost").options(**kafka.reading, subscribe=source)
        rows = reader.options(startingOffsets="earliest").load()
        writer = rows.select("value").writeStream.format("fencepost").options(**kafka.reading)
        writer = writer.options(topic=out, transactions="task", decisionTopic=decisions)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query.start().awaitTermination()

    for name in (source, out):
        kafka.create(name, partitions=2)
    kafka.transaction(source, ["a", "b", "c"], "commit", fresh("writer"))
    kafka.transaction(source, ["x"], "abort", fresh("writer"))
    kafka.write(source, ["d", "e"], partition=1)
    run()
    assert kafka.committed(out) == ["a", "b", "c", "d", "e"]
    kafka.write(source, ["f"])
    run()
    assert kafka.committed(out) == ["a", "b", "c", "d", "e", "f"]
    kafka.delete(source)
    kafka.create(source, partitions=2)
    kafka.write(source, [f"{n}" for n in range(20)])
    with pytest.raises(Exception, match=f"the topic {source} was deleted and created again"):
        run()
    assert kafka.committed(out) == ["a", "b", "c", "d", "e", "f"]
