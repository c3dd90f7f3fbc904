"""The options there are, in one table: the README's is compared with it.

Names are those of Spark's Kafka connector wherever it has the option. Spark hands options over in lower case, so
they are looked up that way.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

BATCH, STREAM = "batch read", "streaming read"
READ: Final = (BATCH, STREAM)
BATCH_SINK, STREAM_SINK = "batch write", "streaming write"
WRITE: Final = (BATCH_SINK, STREAM_SINK)
ALL: Final = (*READ, *WRITE)
KAFKA: Final = "kafka."


class Option(NamedTuple):
    name: str
    used_in: tuple[str, ...]
    default: str
    meaning: str


OPTIONS: Final = (
    Option("kafka.bootstrap.servers", ALL, "required", "HOST:PORT,…; `bootstrap.servers` will do"),
    Option("subscribe", READ, "one of three", "topics, with commas between them"),
    Option("subscribePattern", READ, "one of three", "a regular expression for whole names"),
    Option("assign", READ, "one of three", '`{"topic": [0, 1]}`'),
    Option("startingOffsets", READ, "earliest; streams: latest", "`earliest`, `latest`, or JSON"),
    Option("startingOffsetsByTimestamp", READ, "", '`{"topic": {"0": MS}}`'),
    Option("startingTimestamp", READ, "", "milliseconds, for all partitions"),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        "error",
        "when nothing is that young: `error` or `latest`",
    ),
    Option("endingOffsets", (BATCH,), "latest", "`latest`, or JSON"),
    Option("endingOffsetsByTimestamp", (BATCH,), "", '`{"topic": {"0": MS}}`'),
    Option("endingTimestamp", (BATCH,), "", "milliseconds, for all partitions"),
    Option("minPartitions", READ, "", "split large ranges until there are about so many tasks"),
    Option("maxRecordsPerPartition", READ, "", "split ranges that have more offsets than this"),
    Option("failOnDataLoss", READ, "true", "false goes on behind what is gone, and logs it"),
    Option("includeHeaders", READ, "false", "adds the column `headers`"),
    Option("maxOffsetsPerTrigger", (STREAM,), "", "at most so many offsets in a micro-batch"),
    Option(
        "minOffsetsPerTrigger",
        (STREAM,),
        "",
        "wait until there are so many, at most the above; `Trigger.Once` and a run's first look take what is there",
    ),
    Option(
        "maxTriggerDelay",
        (STREAM,),
        "15m",
        "but no longer than this; a number alone is milliseconds",
    ),
    Option("checkClusterId", (STREAM,), "true", "refuse a checkpoint of another cluster"),
    Option(
        "topic", WRITE, "", "for all rows; without it each row says its own in the column `topic`"
    ),
    Option("transactions", WRITE, "group", "`group`, or `task` where the brokers have no groups"),
    Option("adminUrl", WRITE, "", "http://HOST:PORT,… of the admin doors; groups need it"),
    Option("adminToken", WRITE, "", "what those doors ask for, if anything; empty is nothing"),
    Option("transactionGroup", WRITE, "see Promises", "the query's name for the brokers"),
    Option("transactionNumber", (BATCH_SINK,), "", "what makes a batch write the same one again"),
    Option("decisionTopic", WRITE, "fencepost-spark-decisions", "for `transactions=task`"),
    Option(
        "rowsDiffer",
        WRITE,
        "fail",
        "a batch that was committed comes again with other rows: `fail`, or `ignore` leaves them out",
    ),
)
BY_LOWER: Final[Mapping[str, Option]] = {each.name.lower(): each for each in OPTIONS}
# Where no door asks for one, its variable is empty; a door that does ask says so.
MAY_BE_EMPTY: Final = ("adminToken",)
# Spark's own, which it hands on to every sink or source.
SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
PATH: Final = "path"  # what load(), save() and start() are given
# What a transaction needs to be said as; librdkafka's two names.
ACKS: Final = ("acks", "request.required.acks")
ALL_ACKS: Final = ("all", "-1")
# What would break a promise, and what to say instead.
NOT_THESE: Final[Mapping[str, str]] = {
    "auto.offset.reset": "say startingOffsets",
    "enable.auto.commit": "positions are kept in Spark's checkpoint",
    "enable.auto.offset.store": "positions are kept in Spark's checkpoint",
    "enable.partition.eof": "it is needed to find the end of a range",
    "key.deserializer": "keys are bytes: cast the column",
    "value.deserializer": "values are bytes: cast the column",
    "key.serializer": "give the column `key` as a string or binary",
    "value.serializer": "give the column `value` as a string or binary",
    "group.id": "there is no consumer group: positions are kept in Spark's checkpoint, and no ACL for a group is asked for",
    "metadata.broker.list": "say kafka.bootstrap.servers",
    "interceptor.classes": "there are none outside of Java",
    "enable.idempotence": "transactions need it on",
    "transactional.id": "say transactionGroup",
    "statistics.interval.ms": "statistics are used by the sink",
    "delivery.report.only.error": "delivery reports are used by the sink",
}
# The same, where it is a write.
NOT_THESE_IN_WRITES: Final[Mapping[str, str]] = {
    "isolation.level": "it is for reads, and a write has nothing that it would change",
}
