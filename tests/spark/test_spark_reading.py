"""A real Spark reads a real node."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from spark_topics import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
    pytest.mark.timeout(300),  # a JVM on a machine that has other things to do
]


def batch(spark: Any, node: Served, topic: str, **options: Any) -> Any:
    reader = spark.read.format("fencepost").options(**node.reading, subscribe=topic)
    return reader.options(**options).load()


def values(rows: Any) -> list[str]:
    return sorted(row.value.decode() for row in rows.select("value").collect())


def test_columns_are_those_of_sparks_kafka_connector(spark: Any, node: Served, topic: str) -> None:
    node.write(topic, ["a"], key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"1")])
    node.write(topic, ["b"], partition=1)
    rows = batch(spark, node, topic, includeHeaders=True)
    assert rows.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = rows.orderBy("partition").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"a", topic)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    at = rows.where("partition = 0").selectExpr("cast(timestamp as string)").first()
    assert at[0] == "2023-11-14 22:13:20.123"
    assert [(h.key, bytes(h.value)) for h in first.headers] == [("h", b"1")]
    assert (second.key, second.headers) == (None, None)


def test_a_range_ends_at_markers_and_aborted_records(spark: Any, node: Served, topic: str) -> None:
    node.transaction(topic, ["c1", "c2"], "commit", f"{topic}-1")
    node.transaction(topic, ["x1", "x2"], "abort", f"{topic}-2")
    assert values(batch(spark, node, topic)) == ["c1", "c2"]
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    assert values(batch(spark, node, topic, **uncommitted)) == ["c1", "c2", "x1", "x2"]


def test_a_batch_ends_before_an_open_transaction(spark: Any, node: Served, topic: str) -> None:
    node.write(topic, ["before"])
    producer = node.transaction(topic, ["open"], "open", f"{topic}-1")
    node.write(topic, ["behind"])
    assert values(batch(spark, node, topic)) == ["before"]
    producer.commit_transaction(20)
    assert values(batch(spark, node, topic)) == ["before", "behind", "open"]


def test_offsets_times_and_splits_choose_what_is_read(spark: Any, node: Served, topic: str) -> None:
    for n in range(10):
        node.write(topic, [str(n)], timestamp=1_000 * (n + 1))
    some = batch(
        spark,
        node,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":2,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":7,"1":-1}}}}',
        minPartitions=3,
    )
    assert values(some) == ["2", "3", "4", "5", "6"]
    assert some.rdd.getNumPartitions() == 3
    late = batch(
        spark,
        node,
        topic,
        startingTimestamp=8_500,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert values(late) == ["8", "9"]


def test_a_pattern_and_an_assignment_choose_partitions(
    spark: Any, node: Served, fresh: Callable[[str], str]
) -> None:
    one, two = fresh("pat"), fresh("pat")
    for name in (one, two):
        node.create(name, partitions=2)
        node.write(name, [f"{name}-0"])
        node.write(name, [f"{name}-1"], partition=1)
    reader = spark.read.format("fencepost").options(**node.reading)
    both = reader.options(subscribePattern=f"{one}|{two}").load()
    assert len(values(both)) == 4
    reader = spark.read.format("fencepost").options(**node.reading)
    assert values(reader.options(assign=f'{{"{two}":[1]}}').load()) == [f"{two}-1"]


def test_what_aged_out_fails_or_is_skipped(spark: Any, node: Served, topic: str) -> None:
    node.write(topic, list("abcdef"))
    node.delete_records(topic, 4)
    asked = {"startingOffsets": f'{{"{topic}":{{"0":1,"1":0}}}}'}
    with pytest.raises(
        Exception, match="offset 1 was asked for, and the partition begins at 4 now"
    ):
        batch(spark, node, topic, **asked).collect()
    assert values(batch(spark, node, topic, **asked, failOnDataLoss=False)) == ["e", "f"]


def test_wrong_topics_and_options_end_in_a_sentence(spark: Any, node: Served, topic: str) -> None:
    with pytest.raises(Exception, match="there is no topic nowhere in the cluster at"):
        batch(spark, node, "nowhere").collect()
    with pytest.raises(
        Exception, match=r"there is no option startingofsets \(is it startingOffsets"
    ):
        batch(spark, node, topic, startingOfsets="earliest").collect()


def stream(spark: Any, node: Served, topic: str, checkpoint: str, **options: Any) -> Any:
    """What one run with Trigger.AvailableNow reads, and the query."""
    seen: list[str] = []
    reader = spark.readStream.format("fencepost").options(**node.reading, subscribe=topic)
    rows = reader.options(**{"startingOffsets": "earliest", **options}).load()

    def keep(part: Any, _: int) -> None:
        seen.extend(values(part))

    query = (
        rows.writeStream.foreachBatch(keep)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(seen), query


def test_a_stream_goes_on_where_it_was_in_batches_of_the_size_that_was_asked_for(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    checkpoint = str(tmp_path)
    node.write(topic, [f"{n:02}" for n in range(10)])
    seen, query = stream(spark, node, topic, checkpoint, maxOffsetsPerTrigger=4)
    assert seen == [f"{n:02}" for n in range(10)]
    sizes = [each.numInputRows for each in query.recentProgress if each.numInputRows]
    assert sizes == [4, 4, 2]
    last = query.recentProgress[0].sources[0]
    assert '"0":10' in last.latestOffset.replace(" ", "")
    node.write(topic, ["new"], partition=1)
    assert stream(spark, node, topic, checkpoint)[0] == ["new"]


def test_a_stream_whose_topic_lost_data_says_so(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    node.write(topic, list("abc"))
    stream(spark, node, topic, str(tmp_path))
    node.write(topic, list("def"))
    node.delete_records(topic, 5)
    with pytest.raises(Exception, match=r"\[3,6\): the partition begins at 5 now"):
        stream(spark, node, topic, str(tmp_path))
    seen, _ = stream(spark, node, topic, str(tmp_path), failOnDataLoss=False)
    assert seen == ["f"]


def test_a_first_batch_that_was_not_done_says_what_aged_out(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    """Of its start Spark keeps nothing, and asks again where `earliest` is."""
    node.write(topic, list("abc"))
    stream(spark, node, topic, str(tmp_path))
    commits = tmp_path / "commits"
    assert [each.name for each in commits.glob("[0-9]*")] == ["0"], "one batch, and no empty one"
    for note in (commits / "0", commits / ".0.crc"):
        note.unlink(missing_ok=True)
    assert stream(spark, node, topic, str(tmp_path), startingOffsets="latest")[0] == list("abc")
    for note in (commits / "0", commits / ".0.crc"):
        note.unlink(missing_ok=True)
    node.delete_records(topic, 2)
    with pytest.raises(Exception, match=r"\[0,3\) was to be read by a batch .* begins at 2 now"):
        stream(spark, node, topic, str(tmp_path))
    assert stream(spark, node, topic, str(tmp_path), failOnDataLoss=False)[0] == ["c"]


def test_a_first_batch_that_was_not_done_is_done_though_its_options_ask_for_what_is_not_there(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    node.write(topic, list("abc"))
    asked = {"startingOffsets": f'{{"{topic}":{{"0":1,"1":0}}}}'}
    assert stream(spark, node, topic, str(tmp_path), **asked)[0] == ["b", "c"]
    for note in (tmp_path / "commits" / "0", tmp_path / "commits" / ".0.crc"):
        note.unlink(missing_ok=True)
    too_far = {"startingOffsets": f'{{"{topic}":{{"0":9,"1":0}}}}'}
    assert stream(spark, node, topic, str(tmp_path), **too_far)[0] == ["b", "c"]
    with pytest.raises(Exception, match="startingOffsets asks for 9, and the partition ends at 3"):
        stream(spark, node, topic, str(tmp_path / "new"), **too_far)


def test_a_stream_whose_topic_was_made_anew_says_so_or_reads_that_from_its_beginning(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    node.write(topic, list("abc"))
    stream(spark, node, topic, str(tmp_path))
    node.delete(topic)
    node.create(topic, partitions=2)
    node.write(topic, list("defg"))
    with pytest.raises(Exception, match=f"the topic {topic} was deleted and created again"):
        stream(spark, node, topic, str(tmp_path))
    lax = stream(spark, node, topic, str(tmp_path), failOnDataLoss=False, maxOffsetsPerTrigger=3)
    assert lax[0] == list("defg")
    node.write(topic, ["h", "i"])
    assert stream(spark, node, topic, str(tmp_path))[0] == ["h", "i"]


def test_a_checkpoint_of_another_cluster_is_refused(
    spark: Any, node: Served, topic: str, tmp_path: Any
) -> None:
    node.write(topic, ["a"])
    stream(spark, node, topic, str(tmp_path))
    for offsets in (tmp_path / "offsets").glob("[0-9]*"):
        told = offsets.read_text()
        changed = re.sub(r'"@cluster": "[^"]+"', '"@cluster": "elsewhere"', told)
        assert changed != told
        offsets.write_text(changed)
    for checksum in (tmp_path / "offsets").glob(".*.crc"):
        checksum.unlink()
    node.write(topic, ["b"])
    with pytest.raises(Exception, match="the checkpoint is of cluster elsewhere"):
        stream(spark, node, topic, str(tmp_path))


def test_a_session_whose_timestamps_have_no_zone_reads_the_same_columns(
    spark: Any, node: Served, topic: str
) -> None:
    """As with Spark's Kafka connector: a record's time is a moment, whatever the word TIMESTAMP means in the session's SQL."""
    node.write(topic, ["a"], timestamp=1_700_000_000_123)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        rows = batch(spark, node, topic)
        assert dict(rows.dtypes)["timestamp"] == "timestamp"
        at = rows.selectExpr("cast(timestamp as string)").first()
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert at[0] == "2023-11-14 22:13:20.123"
