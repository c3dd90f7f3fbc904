"""What transaction coordinators count, and what Prometheus calls it."""

from typing import Final

from fencepost.cluster.base.metrics import counter, gauge


class TransactionCounters:
    """Of one node."""

    __slots__ = ("aborted", "committed", "timed_out")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0


TRANSACTIONS: Final = gauge(
    "fencepost_transactions",
    "Transactional ids that this node coordinates, by the state of theirs.",
    "state",
)
OLDEST: Final = gauge(
    "fencepost_open_transaction_seconds",
    "Since when the oldest open transaction that is coordinated here has been open; 0 if none is.",
)
ENDED: Final = counter(
    "fencepost_transactions_ended_total",
    "Transactions decided here: committed, aborted.",
    "outcome",
)
TIMED_OUT: Final = counter(
    "fencepost_transactions_timed_out_total", "Of those aborted: because their time was up."
)
FENCED: Final = counter(
    "fencepost_transactions_fenced_total",
    "Requests refused because a newer producer has the transactional id.",
)
HALF_MESSAGES: Final = gauge(
    "fencepost_half_messages",
    "Half messages: waiting for an answer; parked, for a person to decide.",
    "state",
)
SENT: Final = counter(
    "fencepost_transaction_markers_sent_total", "Ends of transactions sent to leaders."
)
SENT_AGAIN: Final = counter(
    "fencepost_transaction_markers_retried_total",
    "Of them sent again, because a partition could not take them.",
)
STUCK: Final = gauge(
    "fencepost_transaction_markers_stuck_partitions",
    "Partitions that ends of transactions wait for.",
)
WRITTEN: Final = counter(
    "fencepost_transaction_markers_written_total",
    "Ends of transactions written to partitions led here.",
)
VERIFICATIONS: Final = counter(
    "fencepost_transaction_verifications_total", "Questions to coordinators before a first write."
)
