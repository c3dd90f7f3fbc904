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

from .spark_points import STRUCK
from .spark_settings import BATCH, DONE, ENDED, READY, TASK, Job, job_file
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
# An executor that is stopped is given up after this long, instead of after two minutes.
PATIENCE = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "20s",
    "spark.network.timeoutInterval": "2s",
}
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
# More than Spark's buffer for a task's Python holds: so it hands rows over as they come, and they come one by one.
LARGE, SLOW = 70_000, "coalesce(reflect('java.lang.Thread', 'sleep', 40L), '') <> 'never'"


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
        "spark.shuffle.readHostLocalDisk": "false",  # nobody reads the files of a dead executor, as on hosts of their own
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
    topic = concat(lit(f"{out}-"), pmod(number, lit(2)).cast("string")).alias("topic")
    return rows.select(topic, *(n for n in ("key", "value", "headers") if n in rows.columns))


def prepared(rows: DataFrame, job: Job, fails_at: int) -> DataFrame:
    if fails_at >= 0:
        rows = rows.where(f"cast(value as string) <> '{fails_at}' or raise_error('struck') is null")
    if job.is_slow:
        rows = rows.withColumn("key", concat("key", lit(b"x" * LARGE))).where(SLOW)
    made = split_in_two(rows, job.out)
    # By hash: `transactions=task` asks for the same rows in the same tasks.
    return made.repartition(job.shuffled_to, "key") if job.shuffled_to else made


def is_first_start(job: Job) -> bool:
    """With a mark, where its input is to fail."""
    struck = Path(job.folder) / STRUCK
    return job.fails_at >= 0 and not struck.exists() and struck.write_text("") == 0


def run(spark: SparkSession, job: Job) -> None:
    spark.conf.set(ROWS_AT_ONCE, "2" if job.is_slow else "10000")
    reading = {"kafka.bootstrap.servers": job.bootstrap, "subscribe": job.source}
    reading["includeHeaders"] = str(job.has_headers)
    writing = {"kafka.bootstrap.servers": job.bootstrap, OPTION: job.strike}
    writing |= {"transactions": TASK} if job.sink == TASK else {"adminUrl": job.admin}
    fails_at = job.fails_at if is_first_start(job) else -1
    if job.sink != BATCH:
        rows = (
            spark.readStream.format("fencepost")
            .options(**reading, startingOffsets="earliest", maxOffsetsPerTrigger=job.per_batch)
            .load()
        )
        query = (
            prepared(rows, job, fails_at)
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
        prepared(part, job, fails_at).write.format(NAME).mode("append").options(
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
    settings = {"spark.cores.max": "2", "spark.executor.memory": "1g", **SPECULATION, **PATIENCE}
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
