"""Reads, writes, commits and long streams of one Spark session, with the data source and with Spark's connector."""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import kafka_connector
from bench_run import HERE, Book
from bench_systems import Fencepost, create_topics, delete_topic, resident_mb
from fencepost.chaos.harness.spark_job import session
from fencepost.clients.spark import register
from fencepost.clients.transactional import AdminApi, TransactionGroup
from spark_growth import WARM, Seen, grown, state_bytes
from spark_table import OURS, THEIRS
from spark_timed import TIMES, TimedDataSource, count

PARTITIONS: Final = 4
TASKS_AT_ONCE: Final = 2
SIZES: Final = {"small": 100, "large": 1024}
SMALL_FACTOR: Final = 3  # so many more of the small ones
KINDS: Final = (("", False), ("arrow_", True))
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

    def exactly_once(self, topic: str) -> dict[str, str]:
        """As it is promised: a write without a number is never known again, and nobody looks at its rows."""
        return {**self.writing, "transactionGroup": f"bench-{topic}", "transactionNumber": "0"}

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
        options = self.exactly_once(topic) if name == OURS else self.reading
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
    """Micro-batches of many tasks, each of which writes; how long the sink's commit takes of them. The first one warms up."""
    ran = _stream(bench, "commit", chosen.tasks, chosen.tasks * 10, batches=chosen.commits + 1)
    times = ran.commits_ms[1:]
    assert len(times) >= 0.8 * chosen.commits, f"{len(times)} commits of {chosen.commits}"
    bench.book.note(OURS, commit_ms=median(times), commit_max_ms=max(times))


def growth(bench: Bench, chosen: argparse.Namespace) -> None:
    """Many small micro-batches: neither their time nor what they cost the cluster may grow."""
    ran = _stream(bench, "growth", TASKS_AT_ONCE, 10, batches=chosen.batches)
    assert len(ran.commits_ms) >= 0.9 * chosen.batches, f"{len(ran.commits_ms)} batches"
    members = {"growth_members": float(ran.members_late - ran.members_early)}
    bench.book.note(OURS, **members, **grown(ran.seen, ran.commits_ms, ran.took_ms))


class Ran(NamedTuple):
    """A stream from its beginning to its end."""

    commits_ms: list[float]
    took_ms: list[float]  # its batches
    seen: list[Seen]
    members_early: int  # of the group
    members_late: int


def _stream(bench: Bench, name: str, tasks: int, each: int, batches: int) -> Ran:
    """In micro-batches of so many tasks."""
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
    return _watched(bench, query, folder / TIMES)


def _watched(bench: Bench, query: Any, times: Path) -> Ran:
    group = TransactionGroup(f"spark-{query.id}", bench.admin)
    early, seen = 0, []
    while query.isActive:
        time.sleep(0.25)
        seen.append(_seen(bench, times))
        if not early and seen[-1].batches >= WARM:
            early = len(group.members())
    if query.exception() is not None:
        raise query.exception()
    commits_ms = [float(line) for line in times.read_text().splitlines()]
    took_ms = [one.batchDuration for one in query.recentProgress if one.numInputRows]
    seen.append(_seen(bench, times))
    return Ran(commits_ms, took_ms, seen, early, len(group.members()))


def _seen(bench: Bench, times: Path) -> Seen:
    commits = len(times.read_text().splitlines()) if times.exists() else 0
    return Seen(commits, resident_mb(bench.node), state_bytes(bench.node.data))
