"""Is it safe to restart? One answer for a person or a script, what it is made of, and how far a restart has come."""

from annotations import CLUSTERS, NODE
from panels import Board, Query, Row, bad_from, graph, stat, states, table
from queries import CLUSTER, OUT_OF_SERVICE, UP, cluster_wide, increase, of, quantile, total, worst

SAFE = f"cluster:fencepost_restart_is_safe:bool{{{CLUSTER}}}"

ANSWER = (
    stat(
        "One node may be restarted",
        "All below is in order. Restart one, wait until this says yes again, and go on. Topics with no replica to spare (one, or as many "
        "as min.insync.replicas) wait for it.",
        f"min({SAFE})",
        unit="none",
        thresholds=(("red", None), ("green", 1)),
        mappings={"0": ("no", "red"), "1": ("yes", "green")},
        width=8,
        height=8,
    ),
    stat(
        "Nodes down",
        "Another one would be two. As the controller counts them, where Prometheus has lost one.",
        f"(sum({UP} == bool 0) > 0) or {OUT_OF_SERVICE}",
        thresholds=bad_from(1),
    ),
    stat(
        "Nodes not ready",
        "Up, and not back in the ISR of all of their partitions, or not in service. /health/ready tells why.",
        f"count({of('fencepost_node_ready')}) - sum({of('fencepost_node_ready')})",
        thresholds=bad_from(1),
    ),
    stat(
        "Active controllers",
        "One, or what a restart asks for is not decided.",
        cluster_wide("fencepost_controller_active"),
        thresholds=(("red", None), ("green", 1), ("red", 2)),
    ),
    stat(
        "Voters",
        "With fewer than three nothing is decided while one is away.",
        f"min({worst('fencepost_quorum_voters', by='cluster', scope=CLUSTER)})",
        unit="none",
        thresholds=(("red", None), ("green", 3)),
    ),
    stat(
        "A voter is behind by",
        "Entries of the metadata, the slowest one. With another voter away the quorum would wait for it.",
        worst("fencepost_quorum_follower_lag_entries", scope=CLUSTER),
        thresholds=bad_from(1000),
    ),
    stat(
        "Offline partitions",
        "Find out first which nodes they need: `fencepost partition list --offline`.",
        cluster_wide("fencepost_offline_partitions"),
        thresholds=bad_from(1),
    ),
    stat(
        "Under-replicated",
        "They lack a replica already.",
        cluster_wide("fencepost_cluster_under_replicated_partitions"),
        thresholds=bad_from(1),
    ),
    stat(
        "At min ISR",
        "One replica less, and acks=all is refused there.",
        total("fencepost_at_min_isr_partitions", scope=CLUSTER),
        thresholds=bad_from(1),
    ),
    stat(
        "On the move",
        "Partitions being copied: `fencepost node list`. A restart would begin their copies anew.",
        cluster_wide("fencepost_reassigning_partitions"),
        thresholds=bad_from(1),
    ),
    stat(
        "Coordinators not active",
        "Loading or failed: their clients wait already.",
        total("fencepost_coordinator_partitions", 'state!="active"', scope=CLUSTER),
        thresholds=bad_from(1),
    ),
)

# What /health/ready says -> its number here, word and colour.
STATES = {
    "ready": (1, "ready", "green"),
    "catching_up": (2, "catching up", "yellow"),
    "behind": (3, "metadata behind", "yellow"),
    "starting": (4, "starting", "blue"),
    "stopping": (5, "stopping", "blue"),
    "fenced": (6, "fenced", "red"),
    "unregistered": (7, "unregistered", "red"),
    "cut_off": (8, "cut off", "red"),
    "disk_full": (9, "disk full", "red"),
    "disk_failed": (10, "disk failed", "red"),
}
STATE_IS = 'state="{}"'
STATE = " + ".join(
    f"{number} * {worst('fencepost_node_state', STATE_IS.format(name), by='instance')}"
    for name, (number, _, _) in STATES.items()
)

NODES_NOW = (
    states(
        "State of each node",
        "As its own /health/ready tells; a gap is a node that does not answer.",
        Query(STATE, "{{instance}}"),
        mappings={str(number): (word, colour) for number, word, colour in STATES.values()},
        height=8,
    ),
    table(
        "Versions",
        "Which build each node runs: how far an upgrade has come.",
        Query(of("fencepost_build_info")),
        columns={"instance": "Node", "version": "Version", "python": "Python"},
        unit="none",
    ),
)

COURSE = (
    graph(
        "Replicas not in sync",
        "Of each node's own, as the metadata tells. A restart is over when they are 0.",
        Query(worst("fencepost_not_in_sync_replicas", by="instance"), "{{instance}}"),
    ),
    graph(
        "What followers lack",
        "Records in the worst partition, by the follower's node id.",
        Query(worst("fencepost_replication_lag_records", by="follower"), "node {{follower}}"),
    ),
    graph(
        "Leaders",
        "A node that stops hands them over; some time after it is back it gets its own again.",
        Query(total("fencepost_leader_partitions", by="instance"), "{{instance}}"),
        stacked=True,
    ),
    graph(
        "Elections",
        "Leaders elected, and nodes taken out of service without having asked for it.",
        Query(increase("fencepost_controller_elections_total"), "leaders elected"),
        Query(increase("fencepost_controller_fencings_total"), "nodes fenced"),
        Query(increase("fencepost_controller_unclean_elections_total"), "unclean elections"),
    ),
    graph(
        "Not led by their first replica",
        "It goes down by itself once all are in sync.",
        Query(cluster_wide("fencepost_not_preferred_leader_partitions"), "partitions"),
    ),
    graph(
        "Acknowledgement, p99",
        "What clients feel of it: a rolling restart costs none of them a second.",
        Query(
            quantile(0.99, "fencepost_request_duration_seconds", 'api="Produce"', by="instance"),
            "{{instance}}",
        ),
        unit="s",
        thresholds=bad_from(1),
    ),
)

STARTS = (
    graph(
        "Up for",
        "Since the process began.",
        Query(
            f"time() - {worst('process_start_time_seconds', by='instance')}",
            "{{instance}}",
        ),
        unit="s",
    ),
    graph(
        "Last start took",
        "Until clients were let in, and of that the check of the logs.",
        Query(worst("fencepost_node_start_seconds", by="instance"), "{{instance}}"),
        Query(worst("fencepost_log_recovery_seconds", by="instance"), "{{instance}} logs"),
        unit="s",
    ),
    table(
        "How it had ended before",
        "clean: it was told to stop. unclean: it was killed, or its machine went down, and its logs were checked.",
        Query(f"{of('fencepost_node_start')} == 1"),
        columns={"instance": "Node", "was": "Logs were"},
        unit="none",
        width=8,
    ),
)

RESTART = Board(
    uid="fencepost-restart",
    title="Fencepost: is it safe to restart?",
    question="Is it safe to restart?",
    answer=(
        "**Yes or no below, and why.** Restart one node (SIGTERM: it hands over first), wait for *yes*, go on. Scripts ask for "
        "`cluster:fencepost_restart_is_safe:bool`, or each node's `/health/ready`: `fencepost health --admin HOST:PORT`."
    ),
    variables=(CLUSTERS, NODE),
    since="now-30m",
    panels=(
        Row("The answer"),
        *ANSWER,
        Row("The nodes"),
        *NODES_NOW,
        Row("The course of a restart"),
        *COURSE,
        Row("Starts"),
        *STARTS,
    ),
)
