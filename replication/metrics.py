"""What this folder counts. Plain numbers, read when somebody asks for them."""

from typing import Final

from fencepost.cluster.base.errors import ErrorCode


class Counters:
    """Of one node."""

    __slots__ = (
        "appended_batches",
        "appended_bytes",
        "appended_records",
        "compaction_rounds",
        "duplicates",
        "isr_expands",
        "isr_shrinks",
        "read_bytes",
        "reads",
        "refused",
        "replicated_bytes_in",
        "replicated_bytes_out",
        "retention_deletes",
        "sync_failures",
        "sync_seconds",
        "synced_partitions",
        "syncs",
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
        self.syncs = 0
        self.synced_partitions = 0
        self.sync_seconds = 0.0
        self.sync_failures = 0
        self.retention_deletes = 0
        self.compaction_rounds = 0
        self.replicated_bytes_in = 0
        self.replicated_bytes_out = 0
        self.truncations = 0
        self.isr_shrinks = 0
        self.isr_expands = 0

    def refuse(self, error: ErrorCode) -> None:
        self.refused[error] = self.refused.get(error, 0) + 1


# The name that Prometheus shows -> the counter, and what it tells.
COUNTERS: Final[dict[str, tuple[str, str]]] = {
    "fencepost_log_appended_batches_total": ("appended_batches", "Record batches written."),
    "fencepost_log_appended_records_total": ("appended_records", "Records in them."),
    "fencepost_log_appended_bytes_total": ("appended_bytes", "Bytes in them."),
    "fencepost_log_duplicates_total": (
        "duplicates",
        "Retries answered from the producer's window.",
    ),
    "fencepost_log_reads_total": ("reads", "Reads for fetches."),
    "fencepost_log_read_bytes_total": ("read_bytes", "Bytes given to fetches."),
    "fencepost_log_syncs_total": ("syncs", "Group commits."),
    "fencepost_log_synced_partitions_total": (
        "synced_partitions",
        "Partitions in all group commits.",
    ),
    "fencepost_log_sync_seconds_total": (
        "sync_seconds",
        "Time spent waiting for the disk to sync.",
    ),
    "fencepost_log_sync_failures_total": (
        "sync_failures",
        "Syncs that failed; their partitions are offline.",
    ),
    "fencepost_log_retention_deletes_total": (
        "retention_deletes",
        "Segments deleted by retention.",
    ),
    "fencepost_log_compaction_rounds_total": ("compaction_rounds", "Logs compacted."),
    "fencepost_replication_in_bytes_total": ("replicated_bytes_in", "Bytes taken from leaders."),
    "fencepost_replication_out_bytes_total": ("replicated_bytes_out", "Bytes sent to followers."),
    "fencepost_replication_truncations_total": (
        "truncations",
        "Times that a follower cut its log where its leader's is another.",
    ),
    "fencepost_isr_shrinks_total": ("isr_shrinks", "Followers proposed to leave an ISR."),
    "fencepost_isr_expands_total": ("isr_expands", "Followers proposed for an ISR."),
}
# With a label `error`, from Counters.refused.
REFUSED: Final = ("fencepost_log_refused_batches_total", "Batches refused, by error.")
# Gauges, from ReplicaManager.
GAUGES: Final[dict[str, str]] = {
    "fencepost_partitions": "Partitions with a replica here.",
    "fencepost_leader_partitions": "Of them led here.",
    "fencepost_offline_partitions": "Of them not served, because of their disk.",
    "fencepost_under_min_isr_partitions": "Of those led here with fewer replicas in sync than they need.",
    "fencepost_under_replicated_partitions": "Of those led here with a replica that is not in sync.",
    "fencepost_late_transaction_partitions": "Of those led here with a transaction that is open for longer than any may be.",
    "fencepost_producer_ids": "Producer ids remembered, over all partitions.",
    "fencepost_disk_full": "1 while writes are refused for want of space.",
}
