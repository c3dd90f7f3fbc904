"""A stream from one topic to another, exactly once, as a user would submit it: spark-submit runs it.

submitted_job.py BOOTSTRAP ADMIN_URL TOPIC OUT CHECKPOINT
"""

import sys

from fencepost.clients.spark import register
from pyspark.sql import SparkSession


def main() -> None:
    bootstrap, admin, topic, out, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    brokers = {"kafka.bootstrap.servers": bootstrap}
    rows = (
        spark.readStream.format("fencepost")
        .options(**brokers, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=50)
        .load()
    )
    query = (
        rows.selectExpr("key", "value")
        .writeStream.format("fencepost")
        .options(**brokers, adminUrl=admin, topic=out, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
