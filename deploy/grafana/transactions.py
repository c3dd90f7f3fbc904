"""Where is my transaction? At its producer, at its coordinator, on the way to the partitions, or at its readers."""

from annotations import CLUSTERS, NODE
from panels import Board, Query, Row, bad_from, graph, stat, watch_from, worse_from
from queries import increase, quantile, rate, total, worst

OPEN = 'state=~"Ongoing|Prepare.*"'  # Prepared too, which waits for its coordinator outside
DURATION = "fencepost_request_duration_seconds"

NOW = (
    stat(
        "Open",
        "Transactions that have begun and are not over, at their coordinators.",
        total("fencepost_transactions", OPEN),
    ),
    stat(
        "Oldest",
        "Since when the oldest has been open. `fencepost txn list --running-for 1m` names it.",
        worst("fencepost_open_transaction_seconds"),
        unit="s",
        thresholds=worse_from(60, 900),
    ),
    stat(
        "Hanging",
        "Partitions with one open for longer than any may be. `fencepost txn find-hanging` names those that nobody ends.",
        total("fencepost_hanging_transaction_partitions"),
        thresholds=bad_from(1),
    ),
    stat(
        "Ended, marker missing",
        "Since when a partition has waited for the marker of a transaction that is decided.",
        worst("fencepost_standstill_seconds", 'reason="ended"'),
        unit="s",
        thresholds=worse_from(10, 60),
    ),
    stat(
        "Readers behind",
        "Records from the last stable offset to the high watermark, in the worst partition.",
        worst("fencepost_last_stable_offset_lag_records"),
        thresholds=watch_from(100_000),
    ),
    stat(
        "Parked half messages",
        "They wait for a person: `fencepost txn parked`, `fencepost txn release`.",
        total("fencepost_half_messages", 'state="parked"'),
        thresholds=watch_from(1),
    ),
)

COORDINATORS = (
    graph(
        "Transactional ids by state",
        "At their coordinators. Ongoing is the producer's turn, PrepareCommit and PrepareAbort the markers'.",
        Query(total("fencepost_transactions", by="state"), "{{state}}"),
        stacked=True,
    ),
    graph(
        "Ended",
        "Decided, by outcome; and of those aborted, how many because their time was up.",
        Query(rate("fencepost_transactions_ended_total", by="outcome"), "{{outcome}}"),
        Query(rate("fencepost_transactions_timed_out_total"), "of them timed out"),
        unit="ops",
    ),
    graph(
        "Oldest open",
        "Of all coordinators' transactions, and of those open in a partition.",
        Query(worst("fencepost_open_transaction_seconds"), "at its coordinator"),
        Query(worst("fencepost_oldest_open_transaction_seconds"), "in a partition"),
        unit="s",
        thresholds=bad_from(900),
    ),
    graph(
        "Fenced",
        "A newer producer has the transactional id. If that never ends, two processes use one id.",
        Query(rate("fencepost_transactions_fenced_total"), "by coordinators"),
        Query(rate("fencepost_producer_fenced_total"), "by partitions"),
        unit="ops",
    ),
    graph(
        "How long its requests take, p99",
        "EndTxn waits for its decision to be committed; InitProducerId for what the last producer left open.",
        Query(
            quantile(
                0.99,
                DURATION,
                'api=~"InitProducerId|AddPartitionsToTxn|AddOffsetsToTxn|TxnOffsetCommit|EndTxn"',
                by="api",
            ),
            "{{api}}",
        ),
        unit="s",
    ),
    graph(
        "Coordinators",
        "Partitions of __transaction_state and __consumer_offsets; those that load or failed answer nobody.",
        Query(
            total("fencepost_coordinator_partitions", by="coordinator, state"),
            "{{coordinator}} {{state}}",
        ),
    ),
)

MARKERS = (
    graph(
        "Markers",
        "Ends of transactions on their way into partitions.",
        Query(rate("fencepost_transaction_markers_sent_total"), "sent"),
        Query(rate("fencepost_transaction_markers_written_total"), "written"),
        Query(rate("fencepost_transaction_markers_retried_total"), "sent again"),
        unit="ops",
    ),
    graph(
        "Partitions that take no marker",
        "Decided transactions wait for them: offline, or under min ISR.",
        Query(
            total("fencepost_transaction_markers_stuck_partitions", by="instance"), "{{instance}}"
        ),
        thresholds=bad_from(1),
    ),
    graph(
        "First writes that were verified",
        "Questions of partitions to coordinators, whether the transaction is open (KIP-890).",
        Query(rate("fencepost_transaction_verifications_total", by="instance"), "{{instance}}"),
        unit="ops",
    ),
)

READERS = (
    graph(
        "Last stable offset behind",
        "Records that readers of committed records can't have yet, in the worst partition of each node.",
        Query(worst("fencepost_last_stable_offset_lag_records", by="instance"), "{{instance}}"),
    ),
    graph(
        "Partitions that stand still",
        "open: their transaction is not decided yet. ended: it is, and its marker is not committed.",
        Query(total("fencepost_standstill_partitions", by="reason"), "{{reason}}"),
    ),
    graph(
        "Since when",
        "The worst of them. `fencepost txn describe ID` says for each partition why.",
        Query(worst("fencepost_standstill_seconds", by="reason"), "{{reason}}"),
        unit="s",
        thresholds=bad_from(60),
    ),
)

PRODUCERS = (
    graph(
        "Retries and holes",
        "Duplicates are answered with their first offset and written once. Out of order: a batch before is missing.",
        Query(rate("fencepost_producer_duplicates_total"), "duplicates"),
        Query(rate("fencepost_producer_out_of_order_total"), "out of order"),
        unit="ops",
    ),
    graph(
        "Producers remembered",
        "By node, over all partitions, as a share of how many may be.",
        Query(
            f"{worst('fencepost_producer_states', by='instance')} / "
            f"{worst('fencepost_producer_states_max', by='instance')}",
            "{{instance}}",
        ),
        unit="percentunit",
        thresholds=worse_from(0.8, 1),
    ),
    graph(
        "Half messages",
        "Waiting: to be checked again. Parked: nobody's check decided them.",
        Query(total("fencepost_half_messages", by="state"), "{{state}}"),
    ),
    graph(
        "Coordinators that were lost",
        "Built anew from their log; for as long their ids are answered COORDINATOR_LOAD_IN_PROGRESS.",
        Query(
            increase("fencepost_coordinator_lost_total", by="coordinator"), "{{coordinator}} lost"
        ),
        Query(
            increase("fencepost_coordinator_load_failures_total", by="coordinator"),
            "{{coordinator}} not loaded",
        ),
        width=12,
    ),
    graph(
        "Loading a coordinator, mean",
        "How long it took to replay its log.",
        Query(
            f"{total('fencepost_coordinator_load_seconds_sum', by='coordinator')} / "
            f"{total('fencepost_coordinator_load_seconds_count', by='coordinator')}",
            "{{coordinator}}",
        ),
        unit="s",
        width=12,
    ),
)

TRANSACTIONS = Board(
    uid="fencepost-transactions",
    title="Fencepost: where is my transaction?",
    question="Where is my transaction?",
    answer=(
        "**`fencepost txn describe ID` says it of one transaction**, for each of its partitions; here is what goes for all. It is at its "
        "producer (Ongoing), at its coordinator (Prepare…), on its way (markers), or its readers wait for another one before it."
    ),
    variables=(CLUSTERS, NODE),
    panels=(
        Row("Now"),
        *NOW,
        Row("At the coordinators"),
        *COORDINATORS,
        Row("On the way into the partitions"),
        *MARKERS,
        Row("At the readers"),
        *READERS,
        Row("Producers and half messages"),
        *PRODUCERS,
    ),
)
