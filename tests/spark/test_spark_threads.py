"""A real Spark: what a function of foreachBatch writes from threads of its own."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from spark_topics import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
    pytest.mark.timeout(300),  # a JVM on a machine that has other things to do
]


@pytest.mark.parametrize(
    ("kind", "numbered", "said"),
    [
        (threading.Thread, False, "pyspark.InheritableThread"),
        (InheritableThread, False, "say transactionGroup .* and transactionNumber=the batch id"),
        (InheritableThread, True, ""),
        (threading.Thread, True, ""),
    ],
    ids=["plain", "inheritable", "inheritable-numbered", "plain-numbered"],
)
def test_a_write_from_a_thread_of_foreach_batch_does_not_pass_for_one_that_never_comes_again(
    spark: Any,
    node: Served,
    topic: str,
    fresh: Callable[[str], str],
    tmp_path: Path,
    kind: type[threading.Thread],
    *,
    numbered: bool,
    said: str,
) -> None:
    """Its query runs the batch again when it is started anew: under a group of its own it would be there twice."""
    source, trouble = fresh("in"), []
    node.create(source)
    node.write(source, ["a", "b"])

    def keep(batch: Any, number: int) -> None:
        named = {"transactionGroup": topic, "transactionNumber": number} if numbered else {}

        def save() -> None:
            batch.sparkSession.createDataFrame([(1,)], "n int")  # has this thread know its session
            writer = batch.select("value").write.format("fencepost").mode("append")
            try:
                writer.options(**node.writing, topic=topic, **named).save()
            except Exception as failed:  # noqa: BLE001 - whatever it is
                trouble.append(str(failed))

        thread = kind(target=save)
        thread.start()
        thread.join()

    reader = spark.readStream.format("fencepost").options(**node.reading, subscribe=source)
    query = reader.option("startingOffsets", "earliest").load().writeStream.foreachBatch(keep)
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    if said:
        assert node.committed(topic) == []
        (why,) = trouble
        assert re.search(said, why), why
    else:
        assert (trouble, node.committed(topic)) == ([], ["a", "b"])
