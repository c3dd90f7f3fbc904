"""What this folder counts, and what Prometheus calls it."""

from typing import Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.metrics import Histogram, counter, gauge, histogram

# The rounds of work that one log may fail, or be left out of.
COMPACTION: Final = "compaction"
RETENTION: Final = "retention"


class TopicCounters:
    """Of one topic on one node, over all its partitions that are or were here: they outlive a partition that moves."""

    __slots__ = ("appended_bytes", "appended_records", "read_bytes")

    def __init__(self) -> None:
        self.appended_bytes = 0
        self.appended_records = 0
        self.read_bytes = 0

    def appended(self, size: int, records: int) -> None:
        self.appended_bytes += size
        self.appended_records += records


class Counters:
    """Of one node."""

    __slots__ = (
        "appended_batches",
        "appended_bytes",
        "appended_records",
        "compaction_rounds",
        "damaged_batches",
        "duplicates",
        "elections",
        "isr_expands",
        "isr_shrinks",
        "read_bytes",
        "reads",
        "recovery_s",
        "refused",
        "replicated_bytes_in",
        "replicated_bytes_out",
        "retention_deletes",
        "round_failures",
        "scrubbed_bytes",
        "sync_failures",
        "sync_s",
        "synced_partitions",
        "syncs",
        "throttled",
        "topics",
        "truncations",
    )  # fmt: skip

    def __init__(self) -> None:
        self.appended_batches = 0
        self.appended_records = 0
        self.appended_bytes = 0
        self.duplicates = 0
        self.refused: dict[ErrorCode, int] = {}
        self.reads = 0
        self.read_bytes = 0
        self.recovery_s = 0.0
        self.syncs = 0
        self.synced_partitions = 0
        self.sync_s = Histogram()
        self.sync_failures = 0
        self.retention_deletes = 0
        self.compaction_rounds = 0
        self.round_failures = {COMPACTION: 0, RETENTION: 0}
        self.scrubbed_bytes = 0
        self.damaged_batches = 0
        self.replicated_bytes_in = 0
        self.replicated_bytes_out = 0
        self.truncations = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        self.throttled = 0
        self.topics: dict[str, TopicCounters] = {}

    def refuse(self, error: ErrorCode) -> None:
        self.refused[error] = self.refused.get(error, 0) + 1

    def of_topic(self, topic: str) -> TopicCounters:
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicCounters()
        return found


# -- logs and disks ------------------------------------------------------------------------------------

RECOVERY: Final = gauge(
    "fencepost_log_recovery_seconds", "To open, check and recover the logs at the last start."
)
APPENDED_BATCHES: Final = counter(
    "fencepost_log_appended_batches_total",
    "Record batches written, by clients, coordinators and leaders.",
)
APPENDED_RECORDS: Final = counter("fencepost_log_appended_records_total", "Records in them.")
APPENDED_BYTES: Final = counter("fencepost_log_appended_bytes_total", "Bytes in them.")
REFUSED: Final = counter(
    "fencepost_log_refused_batches_total", "Batches that a leader refused.", "error"
)
READS: Final = counter("fencepost_log_reads_total", "Reads for fetches.")
READ_BYTES: Final = counter("fencepost_log_read_bytes_total", "Bytes given to fetches.")
SYNC: Final = histogram(
    "fencepost_log_sync_seconds", "How long a group commit waited for the disk."
)
SYNCED_PARTITIONS: Final = counter(
    "fencepost_log_synced_partitions_total", "Partitions in all group commits."
)
SYNC_FAILURES: Final = counter(
    "fencepost_log_sync_failures_total",
    "Group commits that failed: their partitions are offline here until a restart.",
)
TRUNCATIONS: Final = counter(
    "fencepost_log_truncations_total",
    "Times that a follower cut its log where its leader's is another.",
)
RETENTION_DELETES: Final = counter(
    "fencepost_log_retention_deletes_total", "Segments deleted by retention."
)
COMPACTIONS: Final = counter("fencepost_log_compactions_total", "Logs compacted.")
ROUND_FAILURES: Final = counter(
    "fencepost_log_round_failures_total",
    "Times that a round of work on one log failed; it is tried again.",
    "type",
)
GIVEN_UP: Final = gauge(
    "fencepost_log_rounds_given_up",
    "Logs that are left out of a round of work until a restart, as it met a fault of this build there.",
    "type",
)
SCRUBBED_BYTES: Final = counter(
    "fencepost_log_scrubbed_bytes_total", "Bytes of logs that were read again and checked."
)
SCRUB_AGE: Final = gauge(
    "fencepost_log_scrub_age_seconds",
    "Since the last full pass over all logs began; while the first one goes on, since the start.",
)
DAMAGED_BATCHES: Final = counter(
    "fencepost_log_damaged_batches_total", "Damaged places that this found, each once."
)
DAMAGED: Final = gauge(
    "fencepost_log_damaged_replicas",
    "Replicas of this node of which it is known that they are damaged.",
)
LOG_SIZE: Final = gauge("fencepost_log_size_bytes", "Bytes in all logs of this node.")
DISK_FREE: Final = gauge(
    "fencepost_disk_free_bytes",
    "Free bytes of the disk that holds log.dirs; -1 if it can't be told.",
)
DISK_SIZE: Final = gauge("fencepost_disk_size_bytes", "Size of the disk that holds log.dirs.")
DISK_FULL: Final = gauge("fencepost_disk_full", "1 while writes are refused for want of space.")
FAILED: Final = gauge(
    "fencepost_failed_replicas", "Replicas of this node that are not served, because of their disk."
)

# -- partitions and replicas ---------------------------------------------------------------------------

REPLICAS: Final = gauge("fencepost_replicas", "Partitions with a replica here.")
LEADER_PARTITIONS: Final = gauge("fencepost_leader_partitions", "Partitions led here.")
UNDER_REPLICATED: Final = gauge(
    "fencepost_under_replicated_partitions", "Led here, with a replica that is not in sync."
)
UNDER_MIN_ISR: Final = gauge(
    "fencepost_under_min_isr_partitions",
    "Led here, with fewer in sync than min.insync.replicas: acks=all is refused.",
)
AT_MIN_ISR: Final = gauge(
    "fencepost_at_min_isr_partitions",
    "Led here, not all in sync, and one more loss has them refuse acks=all.",
)
NOT_IN_SYNC: Final = gauge(
    "fencepost_not_in_sync_replicas", "Replicas of this node that are not in their ISR."
)
ISR_SHRINKS: Final = counter(
    "fencepost_isr_shrinks_total", "Followers proposed to leave an ISR, by this node as leader."
)
ISR_EXPANDS: Final = counter(
    "fencepost_isr_expands_total", "Followers proposed for an ISR, by this node as leader."
)
ELECTIONS: Final = counter(
    "fencepost_leader_elections_total",
    "Times that this node became the leader of a partition, or its leader anew.",
)
LAG_RECORDS: Final = gauge(
    "fencepost_replication_lag_records",
    "The most records that a follower lacks in any one partition led here.",
    "follower",
)
LAG_SECONDS: Final = gauge(
    "fencepost_replication_lag_seconds",
    "For how long a follower has not had all of a partition led here, at the worst.",
    "follower",
)
BYTES_IN: Final = counter("fencepost_replication_in_bytes_total", "Bytes taken from leaders.")
BYTES_OUT: Final = counter("fencepost_replication_out_bytes_total", "Bytes sent to followers.")

# -- producers and open transactions -------------------------------------------------------------------

DUPLICATES: Final = counter(
    "fencepost_producer_duplicates_total",
    "Retries answered from the producer's window instead of being written twice.",
)
OUT_OF_ORDER: Final = counter(
    "fencepost_producer_out_of_order_total",
    "Batches refused with OUT_OF_ORDER_SEQUENCE_NUMBER.",
)
FENCED: Final = counter(
    "fencepost_producer_fenced_total",
    "Batches refused with INVALID_PRODUCER_EPOCH or PRODUCER_FENCED.",
)
PRODUCERS: Final = gauge(
    "fencepost_producer_states", "Producer ids remembered, over all partitions."
)
PRODUCERS_MAX: Final = gauge("fencepost_producer_states_max", "How many may be.")
OPEN_TRANSACTIONS: Final = gauge(
    "fencepost_partition_open_transactions",
    "Transactions open in partitions led here, each once a partition.",
)
OLDEST_OPEN: Final = gauge(
    "fencepost_oldest_open_transaction_seconds",
    "Since when the oldest transaction in a partition led here has been open; 0 if none is.",
)
HANGING: Final = gauge(
    "fencepost_hanging_transaction_partitions",
    "Led here, with a transaction that is open for longer than any may be.",
)
STABLE_LAG: Final = gauge(
    "fencepost_last_stable_offset_lag_records",
    "From last stable offset to high watermark, in the worst partition led here.",
)
STANDSTILLS: Final = gauge(
    "fencepost_standstill_partitions",
    "Led here, last stable offset behind: a transaction is open, or has ended without its marker.",
    "reason",
)
STANDSTILL: Final = gauge(
    "fencepost_standstill_seconds", "Since when the worst of them stands.", "reason"
)

# -- topics, where somebody asks for them ----------------------------------------------------------------

TOPIC_APPENDED_BYTES: Final = counter(
    "fencepost_topic_appended_bytes_total", "Bytes produced, to partitions led here.", "topic"
)
TOPIC_APPENDED_RECORDS: Final = counter(
    "fencepost_topic_appended_records_total", "Records produced, to partitions led here.", "topic"
)
TOPIC_READ_BYTES: Final = counter(
    "fencepost_topic_read_bytes_total", "Bytes fetched from this node.", "topic"
)
TOPIC_SIZE: Final = gauge(
    "fencepost_topic_size_bytes", "Bytes of the topic's replicas on this node.", "topic"
)
TOPIC_UNDER_REPLICATED: Final = gauge(
    "fencepost_topic_under_replicated_partitions",
    "Led here, with a replica that is not in sync.",
    "topic",
)
