"""What users of Spark's own Kafka connector do, against the brokers that are named: spark-submit runs it.

connector_job.py BOOTSTRAP TOPIC OUT FOLDER; prints what it found as one line of JSON behind `found `.
"""

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    bootstrap, topic, out, folder = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    brokers = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.sql(
        "select cast(id as string) as key, concat('row ', id) as value,"
        " array(named_struct('key', 'h', 'value', cast('1' as binary))) as headers from range(200)"
    )
    rows.write.format("kafka").options(**brokers, topic=topic, includeHeaders=True).save()
    read = spark.read.format("kafka").options(**brokers, subscribe=topic, includeHeaders=True)
    committed = read.option("kafka.isolation.level", "read_committed").load()
    found = {
        "columns": committed.columns,
        "values": sorted(each.value.decode() for each in committed.select("value").collect()),
        "headers": committed.where("headers[0].key = 'h'").count(),
        "late": read.option("startingTimestamp", 1)
        .option("minPartitions", 6)
        .load()
        .rdd.getNumPartitions(),
    }
    stream = (
        spark.readStream.format("kafka")
        .options(**brokers, subscribePattern=f"{topic}|none", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", 70)
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("kafka")
        .options(**brokers, topic=out, checkpointLocation=folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["batches"] = len([each for each in query.recentProgress if each.numInputRows])
    found["written"] = (
        spark.read.format("kafka").options(**brokers, subscribe=out).load().distinct().count()
    )
    print(f"found {json.dumps(found)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
