"""The settings of a topic: Kafka's table, and the one typed value that the log works by.

A value in force is looked up in this order: set on the topic; set on this broker; set on all brokers; in the
node's own configuration; the default. All but the first under the setting's broker-level name
(`segment.bytes` <- `log.segment.bytes`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..base.errors import ConfigRefused
from ..base.ids import BrokerId
from .broker_config import BrokerValues
from .config_def import (
    LONG_MAX,
    ConfigDef,
    ConfigValue,
    at_least,
    between,
    boolean,
    csv,
    double,
    gzip_level,
    integer,
    list_of,
    long,
    one_of,
    string,
    table,
    throttled_replicas,
)
from .image import BROKER_DEFAULT, ClusterImage, ConfigType
from .topic_names import why_topic_name_invalid

__all__ = [
    "TOPIC_CONFIGS",
    "TopicConfig",
    "TopicConfigs",
    "check_topic_configs",
    "why_topic_name_invalid",
]


def _of(name: str) -> tuple[tuple[str, int], ...]:
    return ((name, 1),)


# In the order in which Kafka checks them.
_ROWS: Final = (
    integer("segment.bytes", 2**30, at_least(1_048_576), synonyms=_of("log.segment.bytes")),
    # Below Kafka's limit, for tests.
    integer(
        "internal.segment.bytes", None, internal=True, synonyms=_of("log.internal.segment.bytes")
    ),
    long(
        "segment.ms",
        604_800_000,
        at_least(1),
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    ),
    long(
        "segment.jitter.ms",
        0,
        at_least(0),
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    ),
    integer(
        "segment.index.bytes", 10_485_760, at_least(4), synonyms=_of("log.index.size.max.bytes")
    ),
    long("flush.messages", LONG_MAX, at_least(1), synonyms=_of("log.flush.interval.messages")),
    long(
        "flush.ms",
        LONG_MAX,
        at_least(0),
        synonyms=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    ),
    # Ours (design §3): when what was written is made durable.
    string(
        "flush.policy", "ack", one_of("ack", "interval", "os"), synonyms=_of("log.flush.policy")
    ),
    long("retention.bytes", -1, synonyms=_of("log.retention.bytes")),
    long(
        "retention.ms",
        604_800_000,
        at_least(-1),
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", 3_600_000),
        ),
    ),
    integer("max.message.bytes", 1_048_588, at_least(0), synonyms=_of("message.max.bytes")),
    integer("index.interval.bytes", 4096, at_least(0), synonyms=_of("log.index.interval.bytes")),
    long(
        "delete.retention.ms",
        86_400_000,
        at_least(0),
        synonyms=_of("log.cleaner.delete.retention.ms"),
    ),
    long(
        "min.compaction.lag.ms", 0, at_least(0), synonyms=_of("log.cleaner.min.compaction.lag.ms")
    ),
    long(
        "max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        synonyms=_of("log.cleaner.max.compaction.lag.ms"),
    ),
    long("file.delete.delay.ms", 60_000, at_least(0), synonyms=_of("log.segment.delete.delay.ms")),
    double(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        synonyms=_of("log.cleaner.min.cleanable.ratio"),
    ),
    csv(
        "cleanup.policy",
        ["delete"],
        list_of("compact", "delete"),
        synonyms=_of("log.cleanup.policy"),
    ),
    boolean(
        "unclean.leader.election.enable", False, synonyms=_of("unclean.leader.election.enable")
    ),
    integer("min.insync.replicas", 1, at_least(1), synonyms=_of("min.insync.replicas")),
    string(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=_of("compression.type"),
    ),
    integer("compression.gzip.level", -1, gzip_level, synonyms=_of("compression.gzip.level")),
    integer("compression.lz4.level", 9, between(1, 17), synonyms=_of("compression.lz4.level")),
    integer(
        "compression.zstd.level", 3, between(-131_072, 22), synonyms=_of("compression.zstd.level")
    ),
    boolean("preallocate", False, synonyms=_of("log.preallocate")),
    string(
        "message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=_of("log.message.timestamp.type"),
    ),
    long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        synonyms=_of("log.message.timestamp.before.max.ms"),
    ),
    long(
        "message.timestamp.after.max.ms",
        3_600_000,
        at_least(0),
        synonyms=_of("log.message.timestamp.after.max.ms"),
    ),
    csv("leader.replication.throttled.replicas", [], throttled_replicas),
    csv("follower.replication.throttled.replicas", [], throttled_replicas),
    boolean("remote.storage.enable", False),
    long("local.retention.ms", -2, at_least(-2), synonyms=_of("log.local.retention.ms")),
    long("local.retention.bytes", -2, at_least(-2), synonyms=_of("log.local.retention.bytes")),
    boolean("remote.log.copy.disable", False),
    boolean("remote.log.delete.on.disable", False),
)

TOPIC_CONFIGS: Final[Mapping[str, ConfigDef]] = table(_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's settings in force. Names are Kafka's with `_` for `.`; milliseconds and bytes; -1 is no limit."""

    cleanup_policy: tuple[str, ...]  # of "delete", "compact"; may be empty
    compression_type: str  # "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    flush_policy: str  # ours: "ack", "interval", "os"
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str  # "CreateTime", "LogAppendTime"
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def resolve(
        cls,
        image: ClusterImage,
        topic: str,
        node_config: Mapping[str, str],
        broker_id: BrokerId | None = None,
    ) -> "TopicConfig":
        """The settings in force for `topic` on this node; `node_config` holds broker-level names as text.

        For many topics use `TopicConfigs`, which computes equal answers once.
        """
        return TopicConfigs(node_config, broker_id).of(image, topic)


MEMO_MAX: Final = 1000  # different sets of overrides that are kept


class TopicConfigs:
    """Resolves topics' settings, once for all topics that have the same: 10,000 of them cost about one."""

    def __init__(self, node_config: Mapping[str, str], broker_id: BrokerId | None = None) -> None:
        self._node_config = node_config
        self._broker_id = broker_id
        self._broker_level: tuple[dict[str, str], dict[str, str]] | None = None
        self._base: dict[str, ConfigValue] = {}
        self._memo: dict[tuple[tuple[str, str], ...], TopicConfig] = {}

    def of(self, image: ClusterImage, topic: str) -> TopicConfig:
        return self.with_overrides(image, image.config(ConfigType.TOPIC, topic))

    def with_overrides(self, image: ClusterImage, overrides: Mapping[str, str]) -> TopicConfig:
        mine = image.config(ConfigType.BROKER, str(self._broker_id))
        broker_level = (dict(mine), dict(image.config(ConfigType.BROKER, BROKER_DEFAULT)))
        if broker_level != self._broker_level:
            values = BrokerValues(image, self._node_config, self._broker_id)
            self._base = {row.name: values.for_topics(row) for row in _ROWS}
            self._broker_level = broker_level
            self._memo.clear()
        key = tuple(sorted(overrides.items()))
        known = self._memo.get(key)
        if known is None:
            if len(self._memo) >= MEMO_MAX:
                self._memo.clear()
            known = self._memo[key] = _typed({**self._base, **_parsed(overrides)})
        return known


def _parsed(overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Overrides were checked when they were set; one that a later version knows is left alone."""
    return {
        name: TOPIC_CONFIGS[name].parse(text)
        for name, text in overrides.items()
        if name in TOPIC_CONFIGS
    }


def _typed(values: Mapping[str, ConfigValue]) -> TopicConfig:
    fields: dict[str, object] = {}
    for name, value in values.items():
        if name == "internal.segment.bytes":
            continue
        fields[name.replace(".", "_")] = tuple(value) if isinstance(value, list) else value
    smaller = values.get("internal.segment.bytes")
    if smaller is not None:
        fields["segment_bytes"] = smaller
    return TopicConfig(**fields)  # type: ignore[arg-type]  # the table's types, by the test


def check_topic_configs(overrides: Mapping[str, str]) -> None:
    """All that is refused of a topic's settings, in Kafka's words: ConfigRefused."""
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            raise ConfigRefused(f"Unknown topic config name: {name}")
    values = {row.name: row.default for row in _ROWS}
    for row in _ROWS:
        if row.name in overrides:
            values[row.name] = row.parse(overrides[row.name])
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least, int) and isinstance(most, int)
    if least > most:
        raise ConfigRefused(
            f"conflict topic config setting min.compaction.lag.ms ({least}) >"
            f" max.compaction.lag.ms ({most})"
        )
    if values["remote.storage.enable"]:
        raise ConfigRefused(
            "Tiered Storage functionality is disabled in the broker."
            " Topic cannot be configured with remote log storage."
        )
