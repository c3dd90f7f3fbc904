"""What the quorum counts, and what Prometheus calls it."""

from typing import Final

from ..base.metrics import Histogram, counter, gauge, histogram


class QuorumCounters:
    """Of one node."""

    __slots__ = ("commit_s", "leader_changes")

    def __init__(self) -> None:
        self.leader_changes = 0
        self.commit_s = Histogram()


LEADER: Final = gauge("fencepost_quorum_leader", "1 if this node leads the metadata quorum.")
LEADER_KNOWN: Final = gauge(
    "fencepost_quorum_leader_known", "1 if this node knows who leads the metadata quorum."
)
TERM: Final = gauge("fencepost_quorum_term", "Raft's term.")
LEADER_CHANGES: Final = counter(
    "fencepost_quorum_leader_changes_total",
    "Times that another leader was seen, or a new term of the same.",
)
VOTERS: Final = gauge("fencepost_quorum_voters", "How many vote.")
COMMIT: Final = histogram(
    "fencepost_quorum_commit_seconds",
    "From a proposal to its being committed and applied, on the leader.",
)
SYNC: Final = histogram(
    "fencepost_quorum_sync_seconds", "How long the metadata journal waited for the disk."
)
PROPOSALS: Final = gauge(
    "fencepost_quorum_proposals_waiting", "Proposals that wait, on the leader."
)
LOG_END: Final = gauge("fencepost_quorum_log_end_index", "The last entry of the log here.")
COMMIT_INDEX: Final = gauge(
    "fencepost_quorum_commit_index", "The last entry that this node knows to be committed."
)
FOLLOWER_LAG: Final = gauge(
    "fencepost_quorum_follower_lag_entries",
    "Entries that a node does not hold yet, as the leader knows.",
    "follower",
)
JOURNAL: Final = gauge(
    "fencepost_quorum_journal_bytes", "Size of the metadata journal on the disk."
)
SNAPSHOT: Final = gauge("fencepost_quorum_snapshot_bytes", "Size of the newest snapshot.")
SNAPSHOT_FAILURES: Final = counter(
    "fencepost_quorum_snapshot_failures_total",
    "Snapshots of the metadata that could not be written; each is tried again.",
)
STALLED: Final = gauge(
    "fencepost_quorum_disk_stalled_seconds",
    "For how long nothing of the journal has become durable that should have.",
)
VERSION: Final = gauge("fencepost_metadata_version", "Metadata commands applied here.")
LAG: Final = gauge(
    "fencepost_metadata_lag_entries", "Entries known to be committed and not applied here yet."
)
