"""A stream from one topic to another, exactly once, as a user would submit it: spark-submit runs it.

submitted_job.py BOOTSTRAP ADMIN_URL TOPIC OUT CHECKPOINT
"""

import sys

from fencepost.clients.spark import register
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

STARTS_MAX = 8
# Spark waits 10 s for a new Python process. The query goes on from its checkpoint.
TOO_BUSY = "Python worker failed to connect back"


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
    for start in range(STARTS_MAX):
        query = (
            rows.selectExpr("key", "value")
            .writeStream.format("fencepost")
            .options(**brokers, adminUrl=admin, topic=out, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as ended:
            if TOO_BUSY not in str(ended) or start == STARTS_MAX - 1:
                raise
    spark.stop()


if __name__ == "__main__":
    main()
