"""The settings of a node that mean something here, Kafka's names, types, defaults and limits (4.3).

Where a default is not Kafka's, the line says so. What each does is in `config_docs.py`; `unused_table.py` has the
rest of Kafka's, which its tools may ask for.
"""

import re
from collections.abc import Mapping
from typing import Final

from .config_def import (
    INT_MAX,
    LONG_MAX,
    ConfigDef,
    ConfigValue,
    Update,
    Validator,
    at_least,
    between,
    boolean,
    csv,
    double,
    gzip_level,
    integer,
    invalid_value,
    list_of,
    long,
    one_of,
    one_of_any_case,
    password,
    short,
    string,
    table,
)
from .request_filter import check_log_level, check_request_log

CLUSTER_WIDE: Final = Update.CLUSTER_WIDE
PER_BROKER: Final = Update.PER_BROKER


def _required_at_least(least: int) -> Validator:
    def check(name: str, value: ConfigValue) -> str | None:
        if isinstance(value, int) and value < least:
            return f"requirement failed: {name} must be greater than or equal to {least}"
        return None

    return check


def _retention_ms(name: str, value: ConfigValue) -> str | None:
    if value != 0:
        return None
    return f"requirement failed: {name} must be unlimited (-1) or, greater than or equal to 1"


def _selector(name: str, value: ConfigValue) -> str | None:
    """Kafka loads any class; of those that it brings along there is one (node/read_replica_policy.py)."""
    if value in (None, "", "org.apache.kafka.common.replica.RackAwareReplicaSelector"):
        return None
    return invalid_value(name, value, f"Class {value} could not be found.")


def _topics(name: str, value: ConfigValue) -> str | None:
    if all(_TOPICS.fullmatch(each.strip()) for each in str(value).split(",")):
        return None
    allowed = (
        "none, all, or names of topics with commas between them; * stands for any part of a name"
    )
    return invalid_value(name, value, f"Allowed is {allowed}, for example orders,payments-*")


_TOPICS: Final = re.compile(r"[a-zA-Z0-9._*-]+")
_ROWS: Final = (
    string("admin.listener", None, internal=True),
    password("admin.token", None, internal=True),
    csv("advertised.listeners", None),
    boolean("auto.create.topics.enable", True),
    boolean("auto.leader.rebalance.enable", True),
    # Kafka: 2000; six of ours still fit into one session.
    integer("broker.heartbeat.interval.ms", 500, at_least(1)),
    integer("broker.id", -1),
    string("broker.rack", None),
    # Kafka: 9000, which is most of its failover time (design §2, liveness).
    integer("broker.session.timeout.ms", 3000, at_least(1)),
    integer("compression.gzip.level", -1, gzip_level, CLUSTER_WIDE),
    integer("compression.lz4.level", 9, between(1, 17), CLUSTER_WIDE),
    string(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        CLUSTER_WIDE,
    ),
    integer("compression.zstd.level", 3, between(-131_072, 22), CLUSTER_WIDE),
    long("connections.max.idle.ms", 600_000),
    csv("controller.quorum.voters", []),
    # Kafka takes any, and refuses each topic that would get it.
    integer("default.replication.factor", 1, at_least(1)),
    boolean("delete.topic.enable", True),
    integer("fetch.max.bytes", 57_671_680, at_least(1024)),
    long("follower.replication.throttled.rate", LONG_MAX, at_least(0), CLUSTER_WIDE, internal=True),
    integer("group.consumer.assignment.interval.ms", 1000, at_least(0), CLUSTER_WIDE),
    csv("group.consumer.assignors", ["uniform", "range"]),
    integer("group.consumer.heartbeat.interval.ms", 5000, at_least(1)),
    integer("group.consumer.max.assignment.interval.ms", 15_000, at_least(0)),
    integer("group.consumer.max.heartbeat.interval.ms", 15_000, at_least(1)),
    integer("group.consumer.max.session.timeout.ms", 60_000, at_least(1)),
    integer("group.consumer.max.size", INT_MAX, at_least(1)),
    string(
        "group.consumer.migration.policy",
        "bidirectional",
        one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    ),
    integer("group.consumer.min.assignment.interval.ms", 0, at_least(0)),
    integer("group.consumer.min.heartbeat.interval.ms", 5000, at_least(1)),
    integer("group.consumer.min.session.timeout.ms", 45_000, at_least(1)),
    integer("group.consumer.session.timeout.ms", 45_000, at_least(1)),
    csv(
        "group.coordinator.rebalance.protocols",
        ["classic", "consumer", "streams"],
        list_of("consumer", "classic", "share", "streams"),
    ),
    integer("group.initial.rebalance.delay.ms", 3000),
    integer("group.max.session.timeout.ms", 1_800_000),
    integer("group.max.size", INT_MAX, at_least(1)),
    integer("group.min.session.timeout.ms", 6000),
    long("leader.imbalance.check.interval.seconds", 10, at_least(1)),
    long("leader.replication.throttled.rate", LONG_MAX, at_least(0), CLUSTER_WIDE, internal=True),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        update=PER_BROKER,
    ),
    csv("listeners", ["PLAINTEXT://:9092"], list_of(), PER_BROKER),
    long("log.cleaner.backoff.ms", 15_000, at_least(0), CLUSTER_WIDE),
    long("log.cleaner.delete.retention.ms", 86_400_000, at_least(0), CLUSTER_WIDE),
    boolean("log.cleaner.enable", True),
    long("log.cleaner.max.compaction.lag.ms", LONG_MAX, at_least(1), CLUSTER_WIDE),
    double("log.cleaner.min.cleanable.ratio", 0.5, between(0, 1), CLUSTER_WIDE),
    long("log.cleaner.min.compaction.lag.ms", 0, at_least(0), CLUSTER_WIDE),
    csv("log.cleanup.policy", ["delete"], list_of("compact", "delete"), CLUSTER_WIDE),
    csv("log.dir", None),  # Kafka: /tmp/kafka-logs, which a cleaner may empty
    csv("log.dirs", None),
    long("log.flush.interval.messages", LONG_MAX, at_least(1), CLUSTER_WIDE),
    long("log.flush.interval.ms", None, update=CLUSTER_WIDE),
    integer("log.flush.offset.checkpoint.interval.ms", 60_000, at_least(0)),
    string("log.flush.policy", "ack", one_of("ack", "interval", "os"), CLUSTER_WIDE),  # ours
    long("log.flush.scheduler.interval.ms", LONG_MAX),
    integer("log.flush.start.offset.checkpoint.interval.ms", 60_000, at_least(0)),
    integer("log.index.interval.bytes", 4096, at_least(0), CLUSTER_WIDE),
    integer("log.index.size.max.bytes", 10_485_760, at_least(4), CLUSTER_WIDE),
    integer("log.internal.segment.bytes", None, at_least(1), internal=True),  # ours, for tests
    long("log.message.timestamp.after.max.ms", 3_600_000, at_least(0), CLUSTER_WIDE),
    long("log.message.timestamp.before.max.ms", LONG_MAX, at_least(0), CLUSTER_WIDE),
    string(
        "log.message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        CLUSTER_WIDE,
    ),
    # Ours: how this node logs, and which requests.
    string("log.format", "auto", one_of("auto", "json", "text"), internal=True),
    string("log.level", "info", check_log_level, CLUSTER_WIDE),
    boolean("log.preallocate", False, update=CLUSTER_WIDE),
    long("log.retention.bytes", -1, update=CLUSTER_WIDE),
    long("log.retention.check.interval.ms", 300_000, at_least(1)),
    integer("log.retention.hours", 168),
    integer("log.retention.minutes", None),
    long("log.retention.ms", None, _retention_ms, CLUSTER_WIDE),
    integer("log.roll.hours", 168, at_least(1)),
    integer("log.roll.jitter.hours", 0, at_least(0)),
    long("log.roll.jitter.ms", None, _required_at_least(0), CLUSTER_WIDE),
    long("log.roll.ms", None, _required_at_least(1), CLUSTER_WIDE),
    # Ours: how often the logs are read again for what has rotted (-1: after a start only), and how fast (0: never).
    long("log.scrub.bytes.per.second", 8_388_608, at_least(0), CLUSTER_WIDE, internal=True),
    long("log.scrub.interval.ms", 604_800_000, at_least(-1), CLUSTER_WIDE, internal=True),
    integer("log.segment.bytes", 1_073_741_824, at_least(1_048_576), CLUSTER_WIDE),
    long("log.segment.delete.delay.ms", 60_000, at_least(0), CLUSTER_WIDE),
    integer("max.connections", INT_MAX, at_least(0), CLUSTER_WIDE),
    integer("max.connections.per.ip", INT_MAX, at_least(0), CLUSTER_WIDE),
    integer("max.incremental.fetch.session.cache.slots", 1000, at_least(0)),
    integer("max.request.partition.size.limit", 2000, at_least(1)),
    integer("message.max.bytes", 1_048_588, at_least(0), CLUSTER_WIDE),
    string("metrics.topics", "none", _topics, internal=True),
    integer("min.insync.replicas", 1, at_least(1), CLUSTER_WIDE),
    integer("node.id", None, at_least(0)),
    integer("num.partitions", 1, at_least(1)),
    integer("offset.metadata.max.bytes", 4096),
    integer("offsets.commit.timeout.ms", 5000, at_least(1)),
    long("offsets.retention.check.interval.ms", 600_000, at_least(1)),
    integer("offsets.retention.minutes", 10_080, at_least(1)),
    integer("offsets.topic.num.partitions", 50, at_least(1)),
    short("offsets.topic.replication.factor", 3, at_least(1)),
    integer("offsets.topic.segment.bytes", 104_857_600, at_least(1)),
    # The peer door is ours, and so are its settings.
    string("peer.advertised.listener", None, internal=True),
    string("peer.listener", None, internal=True),
    password("peer.secret", None, internal=True),
    string("peer.ssl.endpoint.identification.algorithm", "https", internal=True),
    password("peer.ssl.key.password", None, internal=True),
    string("peer.ssl.keystore.location", None, internal=True),
    string("peer.ssl.truststore.location", None, internal=True),
    csv("process.roles", None, list_of("broker", "controller")),
    integer("producer.id.expiration.ms", 86_400_000, at_least(1), CLUSTER_WIDE),
    long("replica.high.watermark.checkpoint.interval.ms", 5000),
    long("replica.lag.time.max.ms", 30_000),
    string("replica.selector.class", None, _selector),
    string("request.log", None, check_request_log, CLUSTER_WIDE),
    # Ours. No acknowledgement over a second is what a rolling restart promises.
    integer("request.log.slow.ms", 1000, at_least(-1), CLUSTER_WIDE),
    integer("socket.request.max.bytes", 104_857_600, at_least(1)),
    string("tracing.otlp.endpoint", None, internal=True),
    double("tracing.sample.ratio", 0.01, between(0, 1), internal=True),
    integer("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, at_least(1)),
    # Ours: checks of transactions whose producer never ended them (RocketMQ's transactional messages).
    integer("transaction.check.delivery.timeout.ms", 5_000, at_least(1), internal=True),
    integer("transaction.check.interval.max.ms", 600_000, at_least(1), internal=True),
    integer("transaction.check.interval.ms", 10_000, at_least(1), internal=True),
    integer("transaction.check.max", 15, at_least(1), internal=True),
    integer("transaction.check.session.timeout.ms", 45_000, at_least(1), internal=True),
    # Ours: how many decided numbers a transaction group remembers, and how long the last one.
    integer("transaction.group.decisions.max", 1_000, at_least(1), internal=True),
    integer("transaction.group.expiration.ms", 7_776_000_000, at_least(1), internal=True),
    integer("transaction.max.timeout.ms", 900_000, at_least(1)),
    boolean("transaction.partition.verification.enable", True, update=CLUSTER_WIDE),
    integer("transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, at_least(1)),
    integer("transaction.state.log.min.isr", 2, at_least(1)),
    integer("transaction.state.log.num.partitions", 50, at_least(1)),
    short("transaction.state.log.replication.factor", 3, at_least(1)),
    integer("transaction.state.log.segment.bytes", 104_857_600, at_least(1)),
    boolean("transaction.two.phase.commit.enable", False),
    integer("transactional.id.expiration.ms", 604_800_000, at_least(1)),
    boolean("unclean.leader.election.enable", False, update=CLUSTER_WIDE),
)

BROKER_TABLE: Final[Mapping[str, ConfigDef]] = table(_ROWS)
