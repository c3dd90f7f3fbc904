"""A real Spark writes to a real node, exactly once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from spark_topics import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
    pytest.mark.timeout(300),  # a JVM on a machine that has other things to do
]
NUMBERS = [f"{n:03}" for n in range(60)]


def rows_of(spark: Any, topic: str, numbers: list[str] = NUMBERS) -> Any:
    rows = spark.createDataFrame([(topic, each) for each in numbers], "topic string, value string")
    return rows.repartition(3, "value")


def write(rows: Any, node: Served, name: str = "fencepost", **options: Any) -> None:
    rows.write.format(name).mode("append").options(**node.writing, **options).save()


def test_a_batch_is_there_as_a_whole_or_not_at_all(spark: Any, node: Served, topic: str) -> None:
    write(rows_of(spark, topic), node)
    assert node.committed(topic) == NUMBERS
    failing = rows_of(spark, topic).selectExpr(
        "topic", "if(value = '030', raise_error('poison'), value) as value"
    )
    with pytest.raises(Exception, match="poison"):
        write(failing, node)
    assert node.committed(topic) == NUMBERS


def test_a_batch_that_is_run_again_under_its_number_writes_nothing_twice(
    spark: Any, node: Served, topic: str, fresh: Callable[[str], str]
) -> None:
    same = {"transactionGroup": fresh("night"), "transactionNumber": 7}
    write(rows_of(spark, topic), node, **same)
    write(rows_of(spark, topic), node, **same)
    assert node.committed(topic) == NUMBERS
    write(rows_of(spark, topic, ["x"]), node, **(same | {"transactionNumber": 8}))
    assert node.committed(topic) == [*NUMBERS, "x"]


def test_many_jobs_write_to_one_topic_at_once_and_each_exactly_once(
    spark: Any, node: Served, topic: str, fresh: Callable[[str], str]
) -> None:
    jobs = {fresh("job"): [f"{number}-{job}" for number in NUMBERS[:20]] for job in range(8)}

    def write_one(group: str) -> None:
        rows = rows_of(spark, topic, jobs[group])
        write(rows, node, transactionGroup=group, transactionNumber=1)

    wanted = sorted(each for numbers in jobs.values() for each in numbers)
    for _ in range(2):  # again under their numbers
        with ThreadPoolExecutor(len(jobs)) as threads:
            list(threads.map(write_one, jobs))
        assert node.committed(topic) == wanted


@pytest.mark.parametrize("transactions", ["group", "task"])
def test_a_second_write_under_a_number_must_have_the_same_rows(
    spark: Any, node: Served, topic: str, fresh: Callable[[str], str], transactions: str
) -> None:
    same = {
        "transactionGroup": fresh("night"),
        "transactionNumber": 7,
        "transactions": transactions,
    }
    write(rows_of(spark, topic), node, **same)
    with pytest.raises(Exception, match="committed before with other rows"):
        write(rows_of(spark, topic, [f"x{each}" for each in NUMBERS]), node, **same)
    write(rows_of(spark, topic, NUMBERS[::-1]), node, **same)
    assert node.committed(topic) == NUMBERS


def test_a_second_write_under_a_number_must_be_to_the_same_topic(
    spark: Any, node: Served, topic: str, fresh: Callable[[str], str]
) -> None:
    other, rows = fresh("other"), rows_of(spark, topic).select("value")
    node.create(other, partitions=2)
    same = {"transactionGroup": fresh("night"), "transactionNumber": 7}
    write(rows, node, topic=topic, **same)
    with pytest.raises(Exception, match="committed by a write to another topic"):
        write(rows, node, topic=other, **same)
    write(rows, node, topic=topic, **same)
    assert (node.committed(topic), node.committed(other)) == (NUMBERS, [])
    for _ in range(2):
        write(rows, node, topic=other, **same, transactions="task")
    assert node.committed(other) == NUMBERS


def test_keys_headers_and_partitions_are_written_as_they_were_given(
    spark: Any, node: Served, topic: str
) -> None:
    rows = spark.sql(
        "select 'k' as key, cast('v' as binary) as value, 1 as partition,"
        " array(named_struct('key', 'h', 'value', cast('1' as binary))) as headers"
    )
    write(rows, node, topic=topic)
    reader = spark.read.format("fencepost").options(**node.reading, subscribe=topic)
    row = reader.option("includeHeaders", True).load().first()
    assert (bytes(row.key), bytes(row.value), row.partition) == (b"k", b"v", 1)
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"1")]


def test_a_value_over_the_limit_leaves_nothing_behind(spark: Any, node: Served, topic: str) -> None:
    rows = spark.sql("select 'small' as value union all select repeat('x', 2000000)")
    with pytest.raises(Exception, match=r"a value of 2,000,000: raise kafka.message.max.bytes"):
        write(rows, node, topic=topic)
    assert node.committed(topic) == []


@pytest.mark.parametrize(
    ("select", "sentence"),
    [
        ("select 1 as value", "the column value is int and must be string or binary: cast it"),
        ("select 'a' as value, 2 as number", "there is no place for a column number"),
        ("select 'a' as key", "there is no column value to write"),
        ("select 'a' as value", "say the option topic, or give each row its own"),
    ],
)
def test_a_wrong_schema_is_named_with_the_choices(
    spark: Any, node: Served, select: str, sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        write(spark.sql(select), node)


class Streamed:
    """A query from one topic to another, run with Trigger.AvailableNow."""

    def __init__(self, spark: Any, node: Served, fresh: Callable[[str], str], folder: Path) -> None:
        self.spark, self.node, self.folder = spark, node, folder
        self.source, self.out = fresh("in"), fresh("out")
        for name in (self.source, self.out):
            node.create(name, partitions=2)
        node.write(self.source, NUMBERS[::2])
        node.write(self.source, NUMBERS[1::2], partition=1)

    def run(self, strike: str = "", **options: Any) -> Any:
        reader = self.spark.readStream.format("fencepost").options(**self.node.reading)
        rows = reader.options(
            subscribe=self.source, startingOffsets="earliest", maxOffsetsPerTrigger=20
        ).load()
        name = "fencepost-struck" if strike else "fencepost"
        if strike:
            options["strike"] = f"{strike},{self.folder}"
        writer = rows.select("value").writeStream.format(name).options(**self.node.writing)
        query = (
            writer.options(topic=self.out, checkpointLocation=f"{self.folder}/checkpoint")
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def forget(self, batch: int) -> None:
        """As if the driver had died before Spark noted this batch."""
        for each in Path(f"{self.folder}/checkpoint/commits").glob("*"):
            if each.name.lstrip(".").removesuffix(".crc") == str(batch):
                each.unlink()

    def put_back(self, batches: int) -> None:
        """The checkpoint as it was after so many batches."""
        for log in ("offsets", "commits"):
            for each in Path(f"{self.folder}/checkpoint/{log}").glob("*"):
                name = each.name.lstrip(".").removesuffix(".crc")
                if name.isdigit() and int(name) >= batches:
                    each.unlink()

    def written(self) -> list[str]:
        return self.node.committed(self.out)


@pytest.fixture
def streamed(spark: Any, node: Served, fresh: Callable[[str], str], tmp_path: Path) -> Streamed:
    return Streamed(spark, node, fresh, tmp_path)


def test_a_stream_writes_every_batch_once(streamed: Streamed) -> None:
    streamed.run()
    assert streamed.written() == NUMBERS
    streamed.node.write(streamed.source, ["more"])
    streamed.run()
    assert streamed.written() == sorted([*NUMBERS, "more"])


def test_a_batch_that_spark_did_not_note_is_found_decided(streamed: Streamed) -> None:
    streamed.run()
    streamed.forget(2)
    streamed.run()
    assert streamed.written() == NUMBERS


@pytest.mark.parametrize(
    ("transactions", "said"),
    [("group", "batch 1 of .* so was 2: Spark runs"), ("task", "batch 1 is lower than 2, which")],
)
def test_a_checkpoint_that_was_put_back_is_refused_and_loses_nothing(
    streamed: Streamed, transactions: str, said: str
) -> None:
    """Batch 1 is planned anew, and its number was decided for other rows."""
    streamed.run(transactions=transactions)
    streamed.put_back(1)
    streamed.node.write(streamed.source, ["new"])
    with pytest.raises(Exception, match=said):
        streamed.run(transactions=transactions)
    assert streamed.written() == NUMBERS


@pytest.mark.parametrize("transactions", ["group", "task"])
def test_new_rows_under_the_last_number_are_refused_and_not_lost(
    streamed: Streamed, transactions: str
) -> None:
    """The last batch's entry in the checkpoint was lost. The same rows under its number are what was committed."""
    streamed.run(transactions=transactions)
    streamed.put_back(2)
    streamed.run(transactions=transactions)
    assert streamed.written() == NUMBERS
    streamed.put_back(2)
    streamed.node.write(streamed.source, ["new"] * 20)
    with pytest.raises(Exception, match=r"committed before with other rows: .* rowsDiffer=ignore"):
        streamed.run(transactions=transactions)
    assert streamed.written() == NUMBERS
    streamed.run(transactions=transactions, rowsDiffer="ignore")
    assert set(streamed.written()) == {*NUMBERS, "new"}


@pytest.mark.parametrize("strike", ["task-wrote,1,1", "worker-halfway,2,0"])
def test_a_task_that_fails_is_written_by_its_retry(streamed: Streamed, strike: str) -> None:
    streamed.run(strike)
    assert (streamed.folder / "struck-0").exists()
    assert streamed.written() == NUMBERS


def test_a_batch_that_failed_is_written_by_the_next_run(streamed: Streamed) -> None:
    with pytest.raises(Exception, match="struck: job-fails"):
        streamed.run("job-fails,1,0")
    assert streamed.written() == streamed.written()[:20]
    streamed.run()
    assert streamed.written() == NUMBERS


def test_a_second_query_with_the_same_group_takes_it_over_and_the_first_one_is_refused(
    streamed: Streamed, spark: Any, node: Served, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    group = fresh("group")
    streamed.run(transactionGroup=group)
    (tmp_path / "other").mkdir()
    other = Streamed(spark, node, fresh, tmp_path / "other")
    other.run(transactionGroup=group)
    streamed.node.write(streamed.source, ["more"])
    with pytest.raises(Exception, match=r"the newer query q.* has taken .* over, as two queries"):
        streamed.run(transactionGroup=group)
    assert (streamed.written(), other.written()) == (NUMBERS, NUMBERS)
    other.forget(2)
    other.node.write(other.source, ["more"])
    other.run(transactionGroup=group)
    assert other.written() == sorted([*NUMBERS, "more"])
    streamed.run(transactionGroup=fresh("group"))
    assert streamed.written() == sorted([*NUMBERS, "more"])


def in_foreach_batch(streamed: Streamed, checkpoint: str, group: str) -> None:
    def write_batch(batch: Any, number: int) -> None:
        write(
            batch,
            streamed.node,
            topic=streamed.out,
            transactionGroup=group,
            transactionNumber=number,
        )

    reader = streamed.spark.readStream.format("fencepost").options(**streamed.node.reading)
    rows = reader.options(subscribe=streamed.source, startingOffsets="earliest").load()
    query = rows.select("value").writeStream.foreachBatch(write_batch)
    folder = f"{streamed.folder}/{checkpoint}"
    query.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()


def test_foreach_batch_goes_on_from_its_checkpoint_and_is_another_query_without_it(
    streamed: Streamed, fresh: Callable[[str], str]
) -> None:
    """A new checkpoint counts from 0 again: its batches must not pass for those that were committed."""
    group = fresh("group")
    in_foreach_batch(streamed, "checkpoint", group)
    assert streamed.written() == NUMBERS
    streamed.forget(0)
    in_foreach_batch(streamed, "checkpoint", group)
    assert streamed.written() == NUMBERS
    streamed.node.write(streamed.source, ["more"])
    in_foreach_batch(streamed, "anew", group)
    twice = sorted([*NUMBERS, *NUMBERS, "more"])
    assert streamed.written() == twice
    with pytest.raises(Exception, match=r"the newer query q.* has taken .* over"):
        in_foreach_batch(streamed, "checkpoint", group)
    assert streamed.written() == twice
