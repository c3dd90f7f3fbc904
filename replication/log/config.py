"""What the log of a partition must be told: the part of a topic's settings that storage works by."""

from dataclasses import dataclass
from typing import Protocol

DAY_MS = 24 * 60 * 60 * 1000
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class LogConfig(Protocol):
    """`cluster.metadata.topic_config.TopicConfig` is one. Milliseconds and bytes; -1 is no limit."""

    @property
    def compact(self) -> bool: ...
    @property
    def delete(self) -> bool: ...
    @property
    def delete_retention_ms(self) -> int: ...
    @property
    def file_delete_delay_ms(self) -> int: ...
    @property
    def flush_policy(self) -> str: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def min_cleanable_dirty_ratio(self) -> float: ...
    @property
    def min_compaction_lag_ms(self) -> int: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def segment_jitter_ms(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...


@dataclass(slots=True, kw_only=True)
class LogSettings:
    """Kafka's defaults, for a log that belongs to no topic and for tests."""

    compact: bool = False
    delete: bool = True
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_policy: str = "ack"
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1024 * 1024 + 12
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
