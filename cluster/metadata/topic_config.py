"""The settings of a topic: Kafka's table, and the one typed value that the log works by.

A value in force is looked up in this order: set on the topic; set on this broker; set on all brokers; in the
node's own configuration; the default. All but the first under the setting's broker-level name
(`segment.bytes` <- `log.segment.bytes`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .config_def import ConfigDef
from .image import ClusterImage

TOPIC_CONFIGS: Final[Mapping[str, ConfigDef]] = {}


@dataclass(slots=True, kw_only=True)
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
        cls, image: ClusterImage, topic: str, node_config: Mapping[str, str], broker_id: int = -1
    ) -> "TopicConfig":
        """The settings in force for `topic` on this node; `node_config` holds broker-level names as text."""
        raise NotImplementedError
