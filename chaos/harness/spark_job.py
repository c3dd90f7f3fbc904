"""A driver of Spark for the kill runs: each of its jobs reads a topic, splits it in two, and writes both.

python -m fencepost.chaos.harness.spark_job MASTER FOLDER

It says `ready`, then does one job after the other, as they come into the folder (`spark_settings.py`), in one session,
because a JVM takes longer to start than a job takes. After each it says `ended N done`, or what Spark said when it
gave up. It is ended by being killed.
"""

import os
import sys
import time
from pathlib import Path

from fencepost.clients.spark import register
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit, pmod

from .spark_settings import DONE, ENDED, READY, STREAM, Job, job_file
from .spark_strikes import DRIVER_FILE, NAME, OPTION, StruckDataSource

# A JVM that lives for minutes needs no second compiler.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss2m"
# Copies of tasks that take long: none of what is quick, even on a machine that has other things to do.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "3s",
}


def session(master: str, **settings: str) -> SparkSession:
    """Small, quiet, and on the loopback alone."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 on the PATH
    builder = SparkSession.builder.master(master).appName("fencepost")
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.authenticate.socketTimeout": "120s",  # of a Python that starts on a busy machine
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
    rows.unpersist()


def attempt(spark: SparkSession, job: Job) -> str:
    try:
        run(spark, job)
    except Exception as failure:  # noqa: BLE001 - Spark's errors have no root of their own; the job is started again
        return f"failed: {failure}".replace("\n", " ")
    return DONE


def main() -> None:
    master, folder = sys.argv[1], Path(sys.argv[2])
    settings = {"spark.cores.max": "2", "spark.executor.memory": "1g", **SPECULATION}
    spark = session(master, **settings)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(StruckDataSource)
    register(spark)
    java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    print(f"{READY}{java} {os.getpid()}", flush=True)
    number = 0
    while True:
        file = job_file(folder, number)
        if file.exists():
            job = Job.read(file)
            (Path(job.folder) / DRIVER_FILE).write_text(f"{java} {os.getpid()}")
            print(f"{ENDED}{number} {attempt(spark, job)}", flush=True)
            number += 1
        time.sleep(0.02)


if __name__ == "__main__":
    main()
