"""Is it healthy? Looked at first, and from afar: green or not; below, since when, and what goes through."""

from annotations import CLUSTERS, NODE
from panels import (
    Board,
    Query,
    Row,
    bad_from,
    good_from,
    graph,
    stat,
    states,
    table,
    watch_from,
    worse_from,
)
from queries import (
    CLUSTER,
    OUT_OF_SERVICE,
    UP,
    cluster_wide,
    increase,
    of,
    quantile,
    rate,
    total,
    worst,
)

ALERTS = f'ALERTS{{alertname=~"Fencepost.+", alertstate="firing", {CLUSTER}}}'
# 0: no answer, 1: an answer, and not ready, 2: ready.
LIFE = (
    f"max by (instance) ({UP}) + (max by (instance) ({of('fencepost_node_ready')}) "
    f"or max by (instance) ({UP}) * 0)"
)
LIFE_WORDS = {"0": ("down", "red"), "1": ("not ready", "yellow"), "2": ("ready", "green")}

NOW = (
    stat(
        "Alerts firing",
        "Critical ones and warnings. The table below names them.",
        f'count(ALERTS{{alertname=~"Fencepost.+", alertstate="firing", severity!="info", {CLUSTER}}}) or vector(0)',
        thresholds=bad_from(1),
    ),
    stat(
        "Nodes not ready",
        "Down, or up and not in service: /health/ready tells why. As the controller counts them, where Prometheus has lost one.",
        f"(count({UP}) - (sum({of('fencepost_node_ready')}) or vector(0)) > 0) or {OUT_OF_SERVICE}",
        thresholds=bad_from(1),
        link="fencepost-restart",
    ),
    stat(
        "Active controllers",
        "Exactly one. With none nothing is decided; reads and writes go on.",
        cluster_wide("fencepost_controller_active"),
        thresholds=(("red", None), ("green", 1), ("red", 2)),
    ),
    stat(
        "Offline partitions",
        "Without a leader: nobody reads or writes them. `fencepost partition list --offline` says why.",
        cluster_wide("fencepost_offline_partitions"),
        thresholds=bad_from(1),
    ),
    stat(
        "Under min ISR",
        "Fewer replicas in sync than min.insync.replicas: acks=all is refused there.",
        total("fencepost_under_min_isr_partitions"),
        thresholds=bad_from(1),
    ),
    stat(
        "Under-replicated",
        "With a replica that is not in sync; for a moment after every restart.",
        cluster_wide("fencepost_cluster_under_replicated_partitions"),
        thresholds=watch_from(1),
        link="fencepost-restart",
    ),
    stat(
        "Failed replicas",
        "Not served any more, because their disk refused.",
        total("fencepost_failed_replicas"),
        thresholds=bad_from(1),
    ),
    stat(
        "Fullest disk",
        "Used share of the disk of log.dirs. At 100 % writes are refused there.",
        f"max(1 - ({of('fencepost_disk_free_bytes')} >= 0) / {of('fencepost_disk_size_bytes')})",
        unit="percentunit",
        thresholds=worse_from(0.8, 0.9),
    ),
    stat(
        "Hanging transactions",
        "Partitions with one open for longer than any may be. `fencepost txn find-hanging` names those that nobody ends.",
        total("fencepost_hanging_transaction_partitions"),
        thresholds=bad_from(1),
        link="fencepost-transactions",
    ),
    stat(
        "Parked half messages",
        "They wait for a person: `fencepost txn parked`.",
        total("fencepost_half_messages", 'state="parked"'),
        thresholds=watch_from(1),
        link="fencepost-transactions",
    ),
    stat(
        "Acknowledgement, p99",
        "From a produce request to its answer, all nodes together.",
        quantile(0.99, "fencepost_request_duration_seconds", 'api="Produce"'),
        unit="s",
        thresholds=worse_from(0.1, 1),
        link="fencepost-slow",
    ),
    stat(
        "Know the quorum's leader",
        "Share of the nodes that answer. The others can't register, and know less and less.",
        f"avg({of('fencepost_quorum_leader_known')})",
        unit="percentunit",
        thresholds=good_from(1),
    ),
)

SINCE_WHEN = (
    states(
        "Nodes",
        "Whether each node answers Prometheus, and says that it is ready.",
        Query(LIFE, "{{instance}}"),
        mappings=LIFE_WORDS,
        height=8,
    ),
    table(
        "Alerts",
        "What fires now. Each alert's annotations say what to look at and which command mends it; "
        "deploy/prometheus/README.md has all.",
        Query(ALERTS),
        columns={"alertname": "Alert", "severity": "Severity", "instance": "Node"},
    ),
)

TRAFFIC = (
    graph(
        "Requests",
        "Answered, by Kafka's name of the API.",
        Query(rate("fencepost_requests_total", by="api"), "{{api}}"),
        unit="reqps",
        stacked=True,
        link="fencepost-slow",
    ),
    graph(
        "Bytes",
        "Written by clients, coordinators and leaders, read by fetches, and copied between nodes.",
        Query(rate("fencepost_log_appended_bytes_total"), "appended"),
        Query(rate("fencepost_log_read_bytes_total"), "read"),
        Query(rate("fencepost_replication_out_bytes_total"), "to followers"),
        unit="Bps",
    ),
    graph(
        "Errors in answers",
        "Some belong to it: NOT_LEADER_OR_FOLLOWER after an election, until clients have found the new leader.",
        Query(rate("fencepost_request_errors_total", by="api, error"), "{{api}} {{error}}"),
        unit="ops",
        stacked=True,
    ),
)

REPLICAS = (
    graph(
        "Partitions in trouble",
        "All lines lie at 0 in a healthy cluster.",
        Query(cluster_wide("fencepost_offline_partitions"), "offline"),
        Query(total("fencepost_under_min_isr_partitions"), "under min ISR"),
        Query(total("fencepost_at_min_isr_partitions"), "at min ISR"),
        Query(cluster_wide("fencepost_cluster_under_replicated_partitions"), "under-replicated"),
        Query(cluster_wide("fencepost_reassigning_partitions"), "on the move"),
    ),
    graph(
        "Elections and ISR changes",
        "A restart makes some. If they never end, a node comes and goes.",
        Query(increase("fencepost_controller_elections_total"), "leaders elected"),
        Query(increase("fencepost_isr_shrinks_total"), "left an ISR"),
        Query(increase("fencepost_isr_expands_total"), "joined an ISR"),
    ),
    graph(
        "Leaders",
        "Partitions that each node leads. About the same everywhere.",
        Query(total("fencepost_leader_partitions", by="instance"), "{{instance}}"),
    ),
)

QUORUM = (
    graph(
        "Decisions",
        "From a proposal to its commitment in the metadata quorum, at its leader.",
        Query(quantile(0.5, "fencepost_quorum_commit_seconds"), "p50"),
        Query(quantile(0.99, "fencepost_quorum_commit_seconds"), "p99"),
        unit="s",
    ),
    graph(
        "Changes of the quorum's leader",
        "As each node saw them. One when the leader is restarted, none else.",
        Query(increase("fencepost_quorum_leader_changes_total", by="instance"), "{{instance}}"),
    ),
    graph(
        "Metadata applied",
        "Commands applied by each node. A line that falls behind is a node that knows old leaders.",
        Query(worst("fencepost_metadata_version", by="instance"), "{{instance}}"),
        least=None,
    ),
)

MACHINES = (
    graph(
        "CPU",
        "Of the process. One loop: at 1 it has no time left, with a little more for the disk's threads.",
        Query(rate("process_cpu_seconds_total", by="instance"), "{{instance}}"),
        unit="percentunit",
        thresholds=worse_from(0.7, 1),
        width=6,
        link="fencepost-slow",
    ),
    graph(
        "Memory",
        "Resident, without the page cache.",
        Query(worst("process_resident_memory_bytes", by="instance"), "{{instance}}"),
        unit="bytes",
        width=6,
    ),
    graph(
        "Free space",
        "Of the disk that holds log.dirs.",
        Query(worst("fencepost_disk_free_bytes", by="instance"), "{{instance}}"),
        unit="bytes",
        width=6,
    ),
    graph(
        "Connections",
        "Of clients, by node and listener.",
        Query(total("fencepost_connections", by="instance, listener"), "{{instance}} {{listener}}"),
        width=6,
    ),
)

HEALTHY = Board(
    uid="fencepost-healthy",
    title="Fencepost: is it healthy?",
    question="Is it healthy?",
    answer=(
        "**Everything green: yes.** Red is for people who must act now, yellow for today. A red field says which question comes "
        "next; `fencepost partition list --offline`, `fencepost node list` and `fencepost txn find-hanging` name names."
    ),
    variables=(CLUSTERS, NODE),
    panels=(
        Row("Now"),
        *NOW,
        Row("Since when"),
        *SINCE_WHEN,
        Row("What goes through"),
        *TRAFFIC,
        Row("Replicas"),
        *REPLICAS,
        Row("The metadata quorum"),
        *QUORUM,
        Row("Machines"),
        *MACHINES,
    ),
)
