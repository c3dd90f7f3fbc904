"""Scenes of the cluster's own trouble: nodes, quorum, replicas, disks."""

from scene import A, B, C, Scene, one, slow

SERVICE = (
    # Up to two minutes a restart may take, in a pod that has to be scheduled too.
    one("FencepostNodeDown", f"up{{{A}}}", "1 2m | 0 5m | 1 3m", "3m50s", "4m20s", "7m20s"),
    Scene(
        "FencepostNodeGone",
        {
            # The pod of c waits for a machine from 2m to 7m.
            f'fencepost_cluster_brokers{{{A},state="active"}}': "3 2m | 2 5m | 3 3m",
            f'fencepost_cluster_brokers{{{A},state="fenced"}}': "0 2m | 1 5m | 0 3m",
            f"up{{{A}}}": "1 10m",
            f"up{{{B}}}": "1 10m",
            f"up{{{C}}}": "1 2m | gone 5m | 1 3m",
        },
        "3m50s",
        "4m20s",
        "7m20s",
    ),
    Scene(
        "FencepostNodeDied",
        {
            # The controller itself dies at 5m, and who follows it counts.
            f"fencepost_controller_fencings_total{{{A}}}": "+0 5m | gone 2m | 0 10m",
            f"fencepost_controller_fencings_total{{{B}}}": "+0 5m | +1 10s | +0 10m",
        },
        "4m50s",
        "5m20s",
        "8m",
    ),
    one(
        "FencepostNodeCutOff",
        f'fencepost_node_state{{{A},state="fenced"}}',
        "0 2m | 1 3m | 0 3m",
        "2m50s",
        "3m30s",
        "5m20s",
    ),
    one(
        "FencepostNodeNotReady",
        f"fencepost_node_ready{{{A}}}",
        "1 2m | 0 15m | 1 3m",
        "11m",
        "13m",
        "17m20s",
    ),
    one(
        "FencepostOfflinePartitions",
        f"fencepost_offline_partitions{{{A}}}",
        "0 2m | 4 3m | 0 3m",
        "2m20s",
        "3m",
        "5m20s",
    ),
    one(
        "FencepostUnderMinIsr",
        f"fencepost_under_min_isr_partitions{{{A}}}",
        "0 2m | 4 3m | 0 3m",
        "2m50s",
        "3m30s",
        "5m20s",
    ),
    Scene(
        "FencepostUnderReplicated",
        {
            f"fencepost_cluster_under_replicated_partitions{{{A}}}": "0 2m | 4 20m | 0 3m",
            # Others are being moved, by a rebalance that takes all night: they lack nothing.
            f"fencepost_reassigning_partitions{{{A}}}": "10 25m",
        },
        "6m50s",
        "8m",
        "22m20s",
    ),
    one(
        "FencepostUncleanElection",
        f"fencepost_controller_unclean_elections_total{{{A}}}",
        "+0 5m | +1 10s | +0 90m",
        "4m",
        "10m",
        "80m",
    ),
)

QUORUM = (
    Scene(
        "FencepostNoController",
        {
            f"fencepost_controller_active{{{A}}}": "1 2m | 0 10m",
            f"fencepost_controller_active{{{B}}}": "0 5m | 1 3m | 0 4m",
            # From 8m on it is c, which Prometheus was not told of before.
            f'fencepost_peers{{{A},state="connected"}}': "1 8m | 2 4m",
            f"up{{{A}}}": "1 12m",
            f"up{{{B}}}": "1 12m",
        },
        "2m20s",
        "3m",
        "10m",
    ),
    Scene(
        "FencepostSeveralControllers",
        {
            f"fencepost_controller_active{{{A}}}": "1 5m | 0 7m",
            f"fencepost_controller_active{{{B}}}": "0 2m | 1 10m",
        },
        "2m50s",
        "3m30s",
        "5m20s",
    ),
    one(
        "FencepostNoQuorum",
        f"fencepost_quorum_leader_known{{{A}}}",
        "1 2m | 0 3m | 1 3m",
        "2m50s",
        "3m30s",
        "5m20s",
    ),
    one(
        "FencepostQuorumUnsteady",
        f"fencepost_quorum_leader_changes_total{{{A}}}",
        # Three restarts are one rolling restart.
        "+0 5m | +1 30s | +0 5m | +3 30s | +0 30m",
        "8m",
        "12m",
        "35m",
    ),
    Scene(
        "FencepostQuorumCommitSlow",
        slow("fencepost_quorum_commit_seconds", A, "fast 10m | slow 20m | fast 20m"),
        "19m",
        "25m",
        "45m",
    ),
    one(
        "FencepostQuorumDiskStalled",
        f"fencepost_quorum_disk_stalled_seconds{{{A}}}",
        "0 2m | 30 2m | 0 2m",
        "2m20s",
        "3m",
        "4m20s",
    ),
    one(
        "FencepostMetadataSnapshotFails",
        f"fencepost_quorum_snapshot_failures_total{{{A}}}",
        # One on a disk that had no room for a moment, then one that goes on.
        "+0 5m | +1 10s | +0 30m | +1 30m | +0 30m",
        "20m",
        "55m",
        "90m",
    ),
    one(
        "FencepostMetadataBehind",
        f"fencepost_metadata_lag_entries{{{A}}}",
        "0 2m | 500 4m | 0 2m",
        "3m50s",
        "5m",
        "6m20s",
    ),
    Scene(
        "FencepostPeersMissing",
        {
            # From 2m on node c is down, which everybody misses; from 8m on a misses b as well.
            f'fencepost_peers{{{A},state="missing"}}': "0 2m | 1 6m | 2 5m | 1 3m",
            f'fencepost_peers{{{B},state="missing"}}': "0 2m | 1 14m",
            f'fencepost_cluster_brokers{{{A},state="fenced"}}': "0 2m | 1 14m",
            f"up{{{A}}}": "1 16m",
            f"up{{{B}}}": "1 16m",
            f"up{{{C}}}": "1 2m | 0 14m",
        },
        "9m",
        "11m",
        "13m20s",
    ),
    Scene(
        "FencepostNodeNotWatched",
        {
            # A fourth node comes at 5m, and is the controller at once; Prometheus is told of it at 40m.
            f'fencepost_cluster_brokers{{{A},state="active"}}': "3 5m | 0 50m",
            f'fencepost_cluster_brokers{{{B},state="active"}}': "0 55m",
            f'fencepost_peers{{{A},state="connected"}}': "2 5m | 3 50m",
            f"up{{{A}}}": "1 55m",
            f"up{{{B}}}": "1 55m",
            f"up{{{C}}}": "1 55m",
            'up{cluster="main",instance="d:9644",job="fencepost"}': "gone 40m | 1 15m",
        },
        "19m",
        "25m",
        "45m",
    ),
    Scene(
        "FencepostClusterGone",
        {
            # Its pods wait for machines from 90m to 130m; another cluster is well.
            f"up{{{A}}}": "1 90m | gone 40m | 1 10m",
            f"up{{{B}}}": "1 90m | gone 40m | 1 10m",
            'up{cluster="other",instance="a:9644",job="fencepost"}': "1 140m",
        },
        "94m",
        "96m",
        "131m",
    ),
    one(
        "FencepostNotWatched",
        f"up{{{A}}}",
        "gone 10m | 1 5m",
        "4m",
        "6m",
        "11m",
    ),
)

REPLICAS = (
    Scene(
        "FencepostReplicationLagGrowing",
        {
            f'fencepost_replication_lag_seconds{{{A},follower="2"}}': "0 5m | +10 30m | 0 5m",
            f'fencepost_replication_lag_records{{{A},follower="2"}}': "0 5m | +100 30m | 0 5m",
        },
        "15m",
        "25m",
        "36m",
    ),
    one(
        "FencepostIsrFlapping",
        f"fencepost_isr_shrinks_total{{{A}}}",
        # A restart of the followers, then one that comes and goes.
        "+0 5m | +3 1m | +0 20m | +1 40m | +0 10m",
        "28m",
        "55m",
        "75m",
    ),
    one(
        "FencepostLeadersFlapping",
        f"fencepost_controller_elections_total{{{A}}}",
        # A rolling restart of some minutes, then leaders that never rest.
        "+0 5m | +3 6m | +0 20m | +1 60m | +0 10m",
        "45m",
        "70m",
        "100m",
    ),
    one(
        "FencepostLeadersUneven",
        f"fencepost_not_preferred_leader_partitions{{{A}}}",
        "0 5m | 3 90m | 0 5m",
        "60m",
        "70m",
        "96m",
    ),
)

DISKS = (
    one(
        "FencepostLogFailed",
        f"fencepost_failed_replicas{{{A}}}",
        "0 2m | 1 2m | 0 2m",
        "1m",
        "3m",
        "5m",
    ),
    one(
        "FencepostLogDamaged",
        f"fencepost_log_damaged_replicas{{{A}}}",
        "0 2m | 1 2m | 0 2m",
        "1m",
        "3m",
        "5m",
    ),
    Scene(
        "FencepostRoundFails",
        {
            # Once, for want of room; then again and again, every five minutes.
            f'fencepost_log_round_failures_total{{{A}, type="compaction"}}': "+0 5m | +1 10s | +0 2h"
            + " | +1 10s | +0 5m" * 6
            + " | +0 2h",
            f'fencepost_log_round_failures_total{{{A}, type="retention"}}': "+0 6h",
        },
        "60m",
        "155m",
        "270m",
    ),
    one(
        "FencepostRoundGivenUp",
        f'fencepost_log_rounds_given_up{{{A}, type="compaction"}}',
        "0 2m | 1 2m | 0 2m",
        "1m",
        "3m",
        "5m",
    ),
    one("FencepostDiskFull", f"fencepost_disk_full{{{A}}}", "0 2m | 1 2m | 0 2m", "1m", "3m", "5m"),
    Scene(
        "FencepostDiskLow",
        {
            # At -1 it can't be told, which is no reason to wake anybody.
            f"fencepost_disk_free_bytes{{{A}}}": "-1 10m | 5e9 10m | 5e10 5m",
            f"fencepost_disk_size_bytes{{{A}}}": "1e11 25m",
        },
        "9m",
        "17m",
        "21m",
    ),
    Scene(
        "FencepostDiskFilling",
        {
            f"fencepost_disk_free_bytes{{{A}}}": "3.6e10 1h | +-5e7 50m | 8e10 2h",
            f"fencepost_disk_size_bytes{{{A}}}": "1e11 4h",
        },
        "59m",
        "105m",
        "200m",
    ),
    Scene(
        "FencepostFlushSlow",
        slow("fencepost_log_sync_seconds", A, "fast 10m | slow 20m | fast 20m"),
        "19m",
        "25m",
        "45m",
    ),
)
