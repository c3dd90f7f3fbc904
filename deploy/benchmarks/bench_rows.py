"""The rows of both tables, with what has to be reached."""

from bench_table import Row

ONE_NODE = (
    Row(key="produce_mb_s", title="Produce, MB/s", ratio_at_least=1.0),
    Row(key="consume_mb_s", title="Consume, MB/s", ratio_at_least=1.0),
    Row(
        key="latency_p50_ms",
        title="Acknowledgement at 1,000 records/s, p50, ms",
        digits=2,
        ratio_at_most=1 / 2,
    ),
    Row(
        key="latency_p99_ms",
        title="Acknowledgement at 1,000 records/s, p99, ms",
        digits=2,
        ratio_at_most=1 / 2,
    ),
    Row(key="produce_cpu_s_gb", title="Node's CPU, s per GB produced", digits=2),
    Row(key="consume_cpu_s_gb", title="Node's CPU, s per GB consumed", digits=2),
    Row(key="start_s", title="Start to first acknowledgement, s", digits=2, below=1.5),
    Row(key="memory_empty_mb", title="Memory at rest, no topics, MB", below=80.0),
    Row(key="memory_topics_mb", title="Memory at rest, 10 topics, MB", below=80.0),
    Row(key="memory_worked_mb", title="Memory after the rounds above, MB"),
    Row(key="many_create_s", title="10,000 partitions: create, s", digits=1),
    Row(key="many_touch_s", title="10,000 partitions: one record into each, s", digits=1),
    Row(key="many_stop_s", title="10,000 partitions: clean stop, s", digits=1),
    Row(key="many_restart_s", title="10,000 partitions: start to ready, s", digits=2, below=5.0),
    Row(key="many_idle_cpu", title="10,000 partitions: idle CPU, % of a core", digits=2, below=2.0),
    Row(key="many_memory_mb", title="10,000 partitions: memory at rest, MB"),
)

THREE_NODES = (
    Row(key="produce_mb_s", title="Produce, MB/s", ratio_at_least=1.0, synced_share=0.75),
    Row(key="consume_mb_s", title="Consume, MB/s", ratio_at_least=1.0, synced_share=0.75),
    Row(
        key="latency_p50_ms",
        title="Acknowledgement at 1,000 records/s, p50, ms",
        digits=2,
        ratio_at_most=1 / 3,
    ),
    Row(
        key="latency_p99_ms",
        title="Acknowledgement at 1,000 records/s, p99, ms",
        digits=2,
        ratio_at_most=1 / 10,
    ),
    Row(
        key="gap_leader_s",
        title="Longest gap in acknowledgements, leader killed, s",
        digits=2,
        below=0.5,
    ),
    Row(
        key="gap_both_s",
        title="Longest gap in acknowledgements, killed leader led the quorum too, s",
        digits=2,
        below=1.5,
    ),
    Row(key="start_s", title="Cluster start, bare to ready, s", digits=2, below=3.0),
    Row(key="memory_worked_mb", title="Memory of a node after the rounds above, MB", below=150.0),
    Row(key="produce_cpu_s_gb", title="CPU of all nodes, s per GB produced", digits=2),
    Row(key="consume_cpu_s_gb", title="CPU of all nodes, s per GB consumed", digits=2),
    Row(
        key="idle_cpu",
        title="3,000 idle partitions of factor 3: CPU of a node, % of a core",
        digits=2,
        below=3.0,
    ),
    Row(key="idle_memory_mb", title="3,000 idle partitions: memory of a node, MB"),
    Row(
        key="failover_s",
        title="10,000 partitions: quorum leader killed, all led again, s",
        digits=2,
        below=2.0,
    ),
    Row(key="commands_s", title="Metadata commands a second", at_least=1_000.0),
    Row(key="txn_s", title="Transactions/s of 10 records, one producer", ratio_at_least=10.0),
    Row(key="txn_p50_ms", title="Transaction of 10 records, p50, ms", digits=2, below=6.0),
    Row(key="txn_p99_ms", title="Transaction of 10 records, p99, ms", digits=2, below=20.0),
    Row(
        key="txn_many_s",
        title="Transactions/s of 10 records, 50 producers at once",
        ratio_at_least=5.0,
    ),
    Row(key="txn_many_p50_ms", title="50 producers at once: transaction, p50, ms", digits=1),
    Row(
        key="txn_many_p99_ms",
        title="50 producers at once: transaction, p99, ms",
        digits=1,
        below=300.0,
    ),
    Row(key="txn_produce_mb_s", title="Produce in transactions of 100 ms, MB/s"),
    Row(
        key="txn_produce_share",
        title="The same, as a share of the rate without transactions",
        digits=2,
        at_least=0.9,
    ),
    Row(key="txn_consume_mb_s", title="Consume what was committed, MB/s"),
    Row(
        key="txn_consume_share",
        title="The same, as a share of the rate at read_uncommitted",
        digits=2,
        at_least=0.95,
    ),
    Row(
        key="txn_coordinator_s",
        title="Longest transaction while its coordinator is killed, s",
        digits=2,
        below=1.0,
    ),
)
