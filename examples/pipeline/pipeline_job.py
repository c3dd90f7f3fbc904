"""The Spark job: reads the topic `orders`, splits it, and writes `revenue` and `alerts`, each exactly once.

    python examples/pipeline/pipeline_job.py '{"bootstrap": "127.0.0.1:9092", "admin": "http://127.0.0.1:10092",
        "folder": "/tmp/pipeline", "master": "local[2]", "window_s": 10, "alert_from": "900.00"}'

Started again with the same folder it goes on from its checkpoints. It ends when there is a file `stop` in the folder and all
that was there by then is written; with exit code 1 when Spark gives up.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from fencepost.clients.spark import register
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

ROW = "id BIGINT, customer STRING, region STRING, amount DECIMAL(10,2), status STRING, placed_at TIMESTAMP"
CHANGE = f"op STRING, before STRUCT<{ROW}>, after STRUCT<{ROW}>"
LATE = "1 hour"  # changes of an order come no later than this; then its window is forgotten
PIDS = "driver.pids"
STOP = "stop"
TRIGGER = "500 milliseconds"


def session(master: str) -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss2m"  # JVMs that live for a minute
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.worker.faulthandler.enabled": "false",
        "spark.task.maxFailures": "8",
    }
    builder = SparkSession.builder.master(master).appName("pipeline")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def changes(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Parsed: what was before and after, and the order's own place and time."""
    records = (
        spark.readStream.format("fencepost")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": "orders"})
        .options(startingOffsets="earliest", maxOffsetsPerTrigger=5_000)
        .load()
    )
    parsed = records.where("value IS NOT NULL").select(
        f.from_json(f.col("value").cast("string"), CHANGE).alias("c")
    )
    row = f.coalesce("c.after", "c.before")
    return parsed.select(
        "c.*", row["region"].alias("region"), row["placed_at"].alias("placed_at")
    ).withWatermark("placed_at", LATE)


def worth(row: str) -> Column:
    """What an order comes to, before or after the change."""
    counts = f.col(f"{row}.status") != "cancelled"
    return f.when(counts, f.col(f"{row}.amount")).otherwise(f.lit(0).cast("decimal(10,2)"))


def number(row: str) -> Column:
    return f.when(f.col(f"{row}.status") != "cancelled", 1).otherwise(0)


def revenue(all_changes: DataFrame, window_s: int) -> DataFrame:
    """A stateful aggregate: what each change adds, by region and window. One record whenever a sum has changed."""
    sums = all_changes.groupBy(f.window("placed_at", f"{window_s} seconds"), "region").agg(
        f.sum(worth("after") - worth("before")).alias("revenue"),
        f.sum(number("after") - number("before")).alias("orders"),
        f.count("*").alias("changes"),
    )
    began = f.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss")
    told = f.struct(
        "region",
        began.alias("window"),
        f.col("revenue").cast("string").alias("revenue"),
        "orders",
        "changes",
    )
    return sums.select(
        f.concat_ws("|", "region", began).alias("key"), f.to_json(told).alias("value")
    )


def alerts(all_changes: DataFrame, alert_from: str) -> DataFrame:
    """Each order that is large, once: when it is placed."""
    large = all_changes.where(f.col("op").isin("c", "r")).where(
        f.col("after.amount") >= f.lit(alert_from).cast("decimal(10,2)")
    )
    told = f.struct(
        f.col("after.id").alias("order"),
        f.col("after.customer").alias("customer"),
        f.col("after.amount").cast("string").alias("amount"),
    )
    return large.select(
        f.col("after.id").cast("string").alias("key"), f.to_json(told).alias("value")
    )


def write_alerts(rows: DataFrame, told: dict[str, Any]) -> StreamingQuery:
    """The sink itself: the batch's id, and the query's in the checkpoint, are what a batch is known again by."""
    return (
        rows.writeStream.format("fencepost")
        .queryName("alerts")
        .options(**_brokers(told), topic="alerts")
        .option("checkpointLocation", f"{told['folder']}/checkpoint-alerts")
        .trigger(processingTime=TRIGGER)
        .start()
    )


def write_revenue(rows: DataFrame, told: dict[str, Any]) -> StreamingQuery:
    """Spark lets no sink in Python take changes of an aggregate (update mode); batch by batch it does. Then it is we who say
    what a batch is known again by: this group, and the batch's id."""

    def write_batch(batch: DataFrame, number: int) -> None:
        (
            batch.write.format("fencepost")
            .mode("append")
            .options(**_brokers(told), topic="revenue")
            .options(transactionGroup="pipeline-revenue", transactionNumber=number)
            .save()
        )

    return (
        rows.writeStream.foreachBatch(write_batch)
        .queryName("revenue")
        .outputMode("update")
        .option("checkpointLocation", f"{told['folder']}/checkpoint-revenue")
        .trigger(processingTime=TRIGGER)
        .start()
    )


def _brokers(told: dict[str, Any]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": told["bootstrap"], "adminUrl": told["admin"]}


def main() -> int:
    told = json.loads(sys.argv[1])
    folder = Path(told["folder"])
    spark = session(told["master"])
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    (folder / PIDS).write_text(f"{os.getpid()} {java}")
    try:
        orders = changes(spark, told["bootstrap"])
        queries = [
            write_revenue(revenue(orders, told["window_s"]), told),
            write_alerts(alerts(orders, told["alert_from"]), told),
        ]
        print("started", flush=True)
        while not (folder / STOP).exists():
            for query in queries:
                if (failure := query.exception()) is not None:
                    raise failure
            time.sleep(0.2)
        for query in queries:
            query.processAllAvailable()
            query.stop()
    except Exception as failure:  # noqa: BLE001 - Spark's errors have no root of their own; it is started again
        print(f"failed: {failure}", flush=True)
        return 1
    finally:
        spark.stop()
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
