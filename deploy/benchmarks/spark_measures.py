"""Reads, writes, commits and long streams of one Spark session, with the data source and with Spark's connector."""

import argparse
import json
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import kafka_connector
from bench_run import HERE, Book
from bench_systems import Fencepost, create_topics, delete_topic
from fencepost.chaos.harness.spark_job import session
from fencepost.clients.spark import register
from fencepost.clients.transactional import AdminApi, TransactionGroup
from spark_table import OURS, THEIRS
from spark_timed import TIMES, TimedDataSource, count

PARTITIONS: Final = 4
TASKS_AT_ONCE: Final = 2
SIZES: Final = {"small": 100, "large": 1024}
SMALL_FACTOR: Final = 3  # so many more of the small ones
# Spark's way from rows to Python, mapInArrow, needs pandas; without it only the other one is measured.
KINDS: Final = (("", False), ("arrow_", True))[: 2 if find_spec("pandas") else 1]
JAVA: Final = "-Xss2m -XX:+UseG1GC"  # as users have it: with both compilers


class Bench:
    """One node, one session with both formats, and where values are noted."""

    def __init__(self, node: Fencepost, book: Book, folder: Path) -> None:
        self.node, self.book, self.folder = node, book, folder
        self.admin = AdminApi.of_dev(node.bootstrap)
        self.spark = session(
            f"local[{TASKS_AT_ONCE}]",
            **{
                "spark.jars": ",".join(map(str, kafka_connector.jars())),
                "spark.driver.memory": "3g",
                "spark.driver.extraJavaOptions": JAVA,
                "spark.sql.streaming.numRecentProgressUpdates": "2000",
                "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
            },
        )
        self.spark.sparkContext.setLogLevel("ERROR")
        # What runs in Python processes that Spark starts.
        self.spark.sparkContext.addPyFile(str(HERE / "spark_timed.py"))
        register(self.spark)
        self.spark.dataSource.register(TimedDataSource)

    def stop(self) -> None:
        self.spark.stop()

    @property
    def reading(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.node.bootstrap}

    @property
    def writing(self) -> dict[str, str]:
        host, port = self.node.bootstrap.split(":")
        return {**self.reading, "adminUrl": f"http://{host}:{int(port) + 1000}"}

    def payload(self, records: int, size: int) -> Any:
        """Text that compresses to about half, in memory before anything is timed."""
        parts = [f"sha2(concat(id, '/{each}'), 512)" for each in range(-(-size // 128))]
        rows = self.spark.range(0, records, 1, PARTITIONS).selectExpr(
            "cast(cast(id as string) as binary) as key",
            f"cast(substr(concat({', '.join(parts)}), 1, {size}) as binary) as value",
        )
        rows = rows.cache()
        rows.count()
        return rows

    def write(self, rows: Any, name: str, topic: str) -> float:
        options = self.writing if name == OURS else self.reading
        began = time.perf_counter()
        rows.write.format(name).mode("append").options(**options, topic=topic).save()
        return time.perf_counter() - began

    def read(self, name: str, topic: str, *, as_arrow: bool) -> tuple[int, float]:
        """How many records there were, and in what time."""
        rows = self.spark.read.format(name).options(**self.reading, subscribe=topic)
        found = rows.option("startingOffsets", "earliest").load()
        began = time.perf_counter()
        if as_arrow:
            counted = found.select("value").mapInArrow(count, "n long")
            number = sum(each.n for each in counted.collect())
        else:
            told = found.selectExpr("count(1) as n", "sum(length(value))", "max(offset)").first()
            number = told.n
        return number, time.perf_counter() - began


def read(bench: Bench, chosen: argparse.Namespace) -> None:
    for size, records in _sizes(chosen):
        topic = f"read-{size}"
        create_topics(bench.node, [topic], PARTITIONS)
        rows = bench.payload(records, SIZES[size])
        bench.write(rows, OURS, topic)
        rows.unpersist()
        for number in range(chosen.rounds + 1):  # the first one warms up
            for name in (OURS, THEIRS):
                for kind, as_arrow in KINDS:
                    found, took = bench.read(name, topic, as_arrow=as_arrow)
                    assert found == records, f"{name}: {found} of {records} records"
                    if number:
                        bench.book.note(name, **{f"read_{kind}{size}_s": found / took})
        delete_topic(bench.node, topic)


def write(bench: Bench, chosen: argparse.Namespace) -> None:
    for size, records in _sizes(chosen):
        rows = bench.payload(records, SIZES[size])
        for number in range(chosen.rounds + 1):
            for name in (OURS, THEIRS):
                topic = f"write-{size}-{name}-{number}"
                create_topics(bench.node, [topic], PARTITIONS)
                took = bench.write(rows, name, topic)
                if number:
                    bench.book.note(name, **{f"write_{size}_s": records / took})
                delete_topic(bench.node, topic)
        rows.unpersist()


def _sizes(chosen: argparse.Namespace) -> list[tuple[str, int]]:
    return [("small", chosen.records * SMALL_FACTOR), ("large", chosen.records)]


def commit(bench: Bench, chosen: argparse.Namespace) -> None:
    """Micro-batches of many tasks, each of which writes; how long the sink's commit takes of them."""
    times = _stream(bench, "commit", chosen.tasks, chosen.tasks * 10, batches=6)
    bench.book.note(OURS, commit_ms=median(times[1:]), commit_max_ms=max(times[1:]))


def growth(bench: Bench, chosen: argparse.Namespace) -> None:
    """Many small micro-batches: neither their time nor what the cluster keeps of them may grow."""
    _stream(bench, "growth", TASKS_AT_ONCE, 10, batches=chosen.batches)


def _stream(bench: Bench, name: str, tasks: int, each: int, batches: int) -> list[float]:
    """A stream in micro-batches of so many tasks; the milliseconds of its commits."""
    source, out = f"{name}-in", f"{name}-out"
    create_topics(bench.node, [source, out], TASKS_AT_ONCE)
    rows = bench.spark.range(0, each * batches, 1, TASKS_AT_ONCE)
    rows = rows.selectExpr(
        f"cast(id % {TASKS_AT_ONCE} as int) as partition", "cast(id as string) as value"
    )
    rows.write.format(THEIRS).options(**bench.reading, topic=source).save()
    folder = bench.folder / name
    folder.mkdir()
    reader = bench.spark.readStream.format(OURS).options(
        **bench.reading,
        subscribe=source,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=each,
        minPartitions=tasks,
    )
    writer = reader.load().select("value").writeStream.format("fencepost-timed")
    query = (
        writer.options(**bench.writing, topic=out, times=str(folder / TIMES))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    group = TransactionGroup(f"spark-{query.id}", bench.admin)
    early = 0
    while query.isActive:
        time.sleep(0.5)
        if not early and _commits(folder) >= batches / 10:
            early = len(group.members())
    if query.exception() is not None:
        raise query.exception()
    times = [float(line) for line in (folder / TIMES).read_text().splitlines()]
    took = [one.batchDuration for one in query.recentProgress if one.numInputRows]
    if name == "growth":
        tenth = max(len(took) // 10, 1)
        kept = bench.admin.call("GET", f"/v1/transaction-groups/{group.name}?limit=1000")
        bench.book.note(
            OURS,
            growth=median(took[-tenth:]) / median(took[tenth : 2 * tenth]),
            growth_members=len(group.members()) - early,
            growth_decisions=len(kept["decisions"]),
            batch_ms=median(took),
        )
        (folder / "batches.json").write_text(json.dumps(took))
    return times


def _commits(folder: Path) -> int:
    times = folder / TIMES
    return len(times.read_text().splitlines()) if times.exists() else 0
