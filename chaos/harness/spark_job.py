"""The job of the kill runs: reads a topic, splits it in two, writes both; as a stream or as batches.

python -m fencepost.chaos.harness.spark_job '{"bootstrap": …}' with the fields of `Job`. Exit code 0: all is written;
1: Spark gave up, and said why.
"""

import json
import os
import sys
from pathlib import Path

from fencepost.clients.spark import register
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit, pmod

from .spark_settings import STREAM, Job
from .spark_strikes import DRIVER_FILE, NAME, OPTION, StruckDataSource

# A JVM that lives for seconds needs no second compiler.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss2m"


def session(master: str, **settings: str) -> SparkSession:
    """Small, quiet, and on the loopback alone."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 on the PATH
    builder = SparkSession.builder.master(master).appName("fencepost")
    chosen = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.worker.faulthandler.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "4",
        **settings,
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def split_in_two(rows: DataFrame, out: str) -> DataFrame:
    number = col("value").cast("string").cast("int")
    return rows.select(
        concat(lit(f"{out}-"), pmod(number, lit(2)).cast("string")).alias("topic"), "key", "value"
    )


def run(spark: SparkSession, job: Job) -> None:
    spark.dataSource.register(StruckDataSource)
    register(spark)
    reading = {"kafka.bootstrap.servers": job.bootstrap, "subscribe": job.source}
    writing = {"kafka.bootstrap.servers": job.bootstrap, "adminUrl": job.admin, OPTION: job.strike}
    if job.sink == STREAM:
        rows = (
            spark.readStream.format("fencepost")
            .options(**reading, startingOffsets="earliest", maxOffsetsPerTrigger=job.per_batch)
            .load()
        )
        query = (
            split_in_two(rows, job.out)
            .writeStream.format(NAME)
            .options(**writing, checkpointLocation=f"{job.folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return
    rows = spark.read.format("fencepost").options(**reading).load().cache()
    for number in range(job.batches):
        part = rows.where(pmod(col("offset"), lit(job.batches)) == number)
        split_in_two(part, job.out).write.format(NAME).mode("append").options(
            **writing, transactionGroup=job.out, transactionNumber=number
        ).save()


def main() -> int:
    job = Job(**json.loads(sys.argv[1]))
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "500ms",
    }
    spark = session(job.master, **(speculation if job.speculation else {}))
    spark.sparkContext.setLogLevel("ERROR")
    java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    (Path(job.folder) / DRIVER_FILE).write_text(f"{java} {os.getpid()}")
    try:
        run(spark, job)
    except Exception as failure:  # noqa: BLE001 - Spark's errors have no root of their own; the loop starts it again
        print(f"failed: {failure}", flush=True)
        return 1
    finally:
        spark.stop()
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
