"""Who is slow? From what clients feel down to disks, loops and followers: the first panel that is out of line is who."""

from annotations import CLUSTERS, NODE, TOPIC
from panels import Board, Query, Row, bad_from, bars, graph, stat, worse_from
from queries import increase, of, quantile, rate, total, worst

DURATION = "fencepost_request_duration_seconds"
# What waits for the client's sake says nothing about the node.
WAITING = 'api!~"Fetch|JoinGroup|SyncGroup"'
A_TOPIC = 'topic=~"$topic"'

NOW = (
    stat(
        "Acknowledgement, p50",
        "From a produce request to its answer.",
        quantile(0.5, DURATION, 'api="Produce"'),
        unit="s",
        thresholds=worse_from(0.02, 0.2),
    ),
    stat(
        "Acknowledgement, p99",
        "The slowest replica in sync is what it waits for.",
        quantile(0.99, DURATION, 'api="Produce"'),
        unit="s",
        thresholds=worse_from(0.1, 1),
    ),
    stat(
        "Slowest disk, p99",
        "Of a group commit, on the slowest node.",
        f"max({quantile(0.99, 'fencepost_log_sync_seconds', by='instance')})",
        unit="s",
        thresholds=worse_from(0.05, 0.5),
    ),
    stat(
        "Slowest loop, p99",
        "How late the event loop is, on the latest node.",
        f"max({quantile(0.99, 'fencepost_loop_lag_seconds', by='instance')})",
        unit="s",
        thresholds=worse_from(0.05, 0.25),
    ),
    stat(
        "Furthest follower",
        "For how long the worst of them has not had all of a partition.",
        worst("fencepost_replication_lag_seconds"),
        unit="s",
        thresholds=worse_from(1, 30),
    ),
    stat(
        "Decision, p99",
        "Of the metadata quorum: elections, ISR changes and new topics wait for it.",
        quantile(0.99, "fencepost_quorum_commit_seconds"),
        unit="s",
        thresholds=worse_from(0.1, 0.5),
    ),
)

FELT = (
    graph(
        "Produce",
        "From the request to the answer, by node. With acks=all the followers are in it.",
        Query(quantile(0.5, DURATION, 'api="Produce"', by="instance"), "{{instance}} p50"),
        Query(quantile(0.99, DURATION, 'api="Produce"', by="instance"), "{{instance}} p99"),
        unit="s",
    ),
    graph(
        "Other requests, p99",
        "Without Fetch, JoinGroup and SyncGroup, which wait for the client's sake.",
        Query(quantile(0.99, DURATION, WAITING, by="api"), "{{api}}"),
        unit="s",
    ),
    graph(
        "Fetch",
        "With what it waits for records, up to the client's fetch.max.wait.ms.",
        Query(quantile(0.5, DURATION, 'api="Fetch"', by="instance"), "{{instance}} p50"),
        Query(quantile(0.99, DURATION, 'api="Fetch"', by="instance"), "{{instance}} p99"),
        unit="s",
    ),
    bars(
        "Where the time goes",
        "Seconds that requests spent on a node, a second, by API. Not CPU: most of it is waiting.",
        Query(
            f"topk(10, {rate(f'{DURATION}_sum', WAITING, by='api')})",
            "{{api}}",
        ),
        unit="s",
    ),
    graph(
        "In flight",
        "Requests that wait for an answer.",
        Query(total("fencepost_requests_in_flight", by="instance"), "{{instance}}"),
    ),
    graph(
        "Held back",
        "By quotas of clients, and by the throttle of moves.",
        Query(rate("fencepost_quota_throttled_total", by="quota"), "{{quota}}"),
        unit="ops",
    ),
)

NODES_COMPARED = (
    graph(
        "Disk: sync of the logs, p99",
        "A group commit. One node out of line is a slow disk, all of them is load.",
        Query(quantile(0.99, "fencepost_log_sync_seconds", by="instance"), "{{instance}}"),
        unit="s",
        thresholds=bad_from(0.5),
    ),
    graph(
        "Disk: sync of the metadata journal, p99",
        "On the same disk as the logs. Decisions wait for a majority of these.",
        Query(quantile(0.99, "fencepost_quorum_sync_seconds", by="instance"), "{{instance}}"),
        unit="s",
        thresholds=bad_from(0.5),
    ),
    graph(
        "Disk: partitions in a group commit",
        "The slower the disk, the larger the groups.",
        Query(
            f"{rate('fencepost_log_synced_partitions_total', by='instance')} / "
            f"{rate('fencepost_log_sync_seconds_count', by='instance')}",
            "{{instance}}",
        ),
    ),
    graph(
        "Loop: how late, p99",
        "Everything on the node waits that long.",
        Query(quantile(0.99, "fencepost_loop_lag_seconds", by="instance"), "{{instance}}"),
        unit="s",
        thresholds=bad_from(0.25),
    ),
    graph(
        "Loop: CPU",
        "At 1 the loop has no time left.",
        Query(rate("process_cpu_seconds_total", by="instance"), "{{instance}}"),
        unit="percentunit",
        thresholds=bad_from(1),
    ),
    graph(
        "Loop: taken by scrapes, p99",
        "For how long at a time a scrape kept the loop.",
        Query(quantile(0.99, "fencepost_scrape_turn_seconds", by="instance"), "{{instance}}"),
        unit="s",
        thresholds=bad_from(0.05),
    ),
)

FOLLOWERS = (
    graph(
        "Behind, in time",
        "By the follower's node id, as its leaders see it. From replica.lag.time.max.ms (30 s) on it leaves the ISR.",
        Query(worst("fencepost_replication_lag_seconds", by="follower"), "node {{follower}}"),
        unit="s",
        thresholds=bad_from(30),
    ),
    graph(
        "Behind, in records",
        "The most that it lacks in any one partition.",
        Query(worst("fencepost_replication_lag_records", by="follower"), "node {{follower}}"),
    ),
    graph(
        "Left an ISR",
        "Followers that were proposed to leave, by the node that leads.",
        Query(increase("fencepost_isr_shrinks_total", by="instance"), "{{instance}}"),
    ),
    graph(
        "Behind, in metadata",
        "Entries of the metadata log that a voter does not hold yet, as its leader sees it.",
        Query(worst("fencepost_quorum_follower_lag_entries", by="follower"), "node {{follower}}"),
    ),
    graph(
        "Lost connections between nodes",
        "Ended without being closed, and given up for silence.",
        Query(
            increase("fencepost_peer_connections_lost_total", by="instance"), "{{instance}} lost"
        ),
        Query(increase("fencepost_peer_silences_total", by="instance"), "{{instance}} silent"),
    ),
    graph(
        "Copied",
        "To followers, by the node that leads.",
        Query(rate("fencepost_replication_out_bytes_total", by="instance"), "{{instance}}"),
        unit="Bps",
    ),
)

TOPICS = (
    graph(
        "Written, by topic",
        "The ten largest. Topics have series of their own where metrics.topics asks for them.",
        Query(
            f"topk(10, {rate('fencepost_topic_appended_bytes_total', A_TOPIC, by='topic')})",
            "{{topic}}",
        ),
        unit="Bps",
    ),
    graph(
        "Read, by topic",
        "The ten largest, as far as metrics.topics has them.",
        Query(
            f"topk(10, {rate('fencepost_topic_read_bytes_total', A_TOPIC, by='topic')})",
            "{{topic}}",
        ),
        unit="Bps",
    ),
    graph(
        "On the disks, by topic",
        "All replicas together; the ten largest, as far as metrics.topics has them.",
        Query(
            f"topk(10, sum by (topic) ({of('fencepost_topic_size_bytes', A_TOPIC)}))", "{{topic}}"
        ),
        unit="bytes",
    ),
)

SLOW = Board(
    uid="fencepost-slow",
    title="Fencepost: who is slow?",
    question="Who is slow?",
    answer=(
        "**Read from top to bottom.** First what clients feel, then disks, loops and followers of each node side by side: the "
        "first line that lies above the others is who. An acknowledgement waits for the slowest replica in sync."
    ),
    variables=(CLUSTERS, NODE, TOPIC),
    panels=(
        Row("Now"),
        *NOW,
        Row("What clients feel"),
        *FELT,
        Row("Nodes side by side"),
        *NODES_COMPARED,
        Row("Followers"),
        *FOLLOWERS,
        Row("Topics"),
        *TOPICS,
    ),
)
