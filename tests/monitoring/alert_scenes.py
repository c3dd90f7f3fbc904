"""What each alert sees while it is quiet, while it fires, and when that is over.

A series is written as it goes: "0 2m | 3 5m | 0 5m" is at 0 for two minutes, then at 3 for five; "+2 5m" rises by 2
from sample to sample, from where it was; "gone 1m" is a node that does not answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

STEP_S = 10
A = 'cluster="main",instance="a:9644",job="fencepost"'
B = 'cluster="main",instance="b:9644",job="fencepost"'
C = 'cluster="main",instance="c:9644",job="fencepost"'
_PIECE = re.compile(r"(gone|\+?-?[\d.e]+) (\d+)(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Scene:
    """`quiet`, `fires` and `clears` are times from its beginning; `clears` is empty where only more time would do."""

    alert: str
    series: Mapping[str, str]
    quiet: str
    fires: str
    clears: str


def samples(course: str) -> str:
    """In promtool's notation, one in ten seconds."""
    words: list[str] = []
    level = 0.0
    for piece in course.split(" | "):
        found = _PIECE.fullmatch(piece)
        assert found is not None, f"{piece!r} in {course!r}"
        count = int(found[2]) * _SECONDS[found[3]] // STEP_S
        if found[1] == "gone":
            words += ["stale", *["_"] * (count - 1)]
        elif found[1].startswith("+"):
            slope = float(found[1][1:])
            words += [f"{level + slope * i:g}" for i in range(1, count + 1)]
            level += slope * count
        else:
            level = float(found[1])
            words += [f"{level:g}"] * count
    return " ".join(words)


def slow(histogram: str, labels: str, course: str) -> dict[str, str]:
    """Ten a sample, all within 10 ms where the course says "fast", all between 1 s and 2 s where it says "slow"."""
    fast = course.replace("fast", "+10").replace("slow", "+0")
    every = course.replace("fast", "+10").replace("slow", "+10")
    return {
        f'{histogram}_bucket{{{labels},le="0.01"}}': fast,
        f'{histogram}_bucket{{{labels},le="1"}}': fast,
        f'{histogram}_bucket{{{labels},le="2"}}': every,
        f'{histogram}_bucket{{{labels},le="+Inf"}}': every,
    }


def one(alert: str, series: str, course: str, *times: str) -> Scene:
    return Scene(alert, {series: course}, *times)


SERVICE = (
    # Up to two minutes a restart may take, in a pod that has to be scheduled too.
    one("FencepostNodeDown", f"up{{{A}}}", "1 2m | 0 5m | 1 3m", "3m50s", "4m20s", "7m20s"),
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
            # While they move they lack replicas by nature.
            f"fencepost_reassigning_partitions{{{A}}}": "0 2m | 4 10m | 0 13m",
        },
        "16m",
        "18m",
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
            f"fencepost_controller_active{{{B}}}": "0 5m | 1 7m",
        },
        "2m20s",
        "3m",
        "5m20s",
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
            # A fourth node comes at 5m, and Prometheus is told of it at 40m.
            f'fencepost_cluster_brokers{{{A},state="active"}}': "3 5m | 4 50m",
            f'fencepost_cluster_brokers{{{B},state="active"}}': "0 55m",
            f"up{{{A}}}": "1 55m",
            f"up{{{B}}}": "1 55m",
            f"up{{{C}}}": "1 55m",
            'up{cluster="main",instance="d:9644",job="fencepost"}': "gone 40m | 1 15m",
        },
        "19m",
        "25m",
        "45m",
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

PROCESS = (
    Scene(
        "FencepostLoopLag",
        slow("fencepost_loop_lag_seconds", A, "fast 10m | slow 20m | fast 20m"),
        "14m",
        "20m",
        "45m",
    ),
    one(
        "FencepostNodeRestarting",
        f"process_start_time_seconds{{{A}}}",
        "100 5m | 400 5m | 700 5m | 1000 60m",
        "12m",
        "20m",
        "60m",
    ),
    Scene(
        "FencepostUncleanStart",
        {
            f'fencepost_node_start{{{A},was="unclean"}}': "0 5m | 1 60m",
            f"process_start_time_seconds{{{A}}}": "0 5m | 300 60m",
        },
        "4m",
        "10m",
        "30m",
    ),
    Scene(
        "FencepostFileDescriptors",
        {
            f"process_open_fds{{{A}}}": "100 2m | 900 10m | 100 2m",
            f"process_max_fds{{{A}}}": "1000 14m",
        },
        "6m",
        "8m",
        "13m",
    ),
    one(
        "FencepostClockJumped",
        f"fencepost_clock_jumps_total{{{A}}}",
        "+0 5m | +1 10s | +0 30m",
        "4m",
        "10m",
        "30m",
    ),
    Scene(
        "FencepostScrapeSlow",
        slow("fencepost_scrape_turn_seconds", A, "fast 20m | slow 60m | fast 40m"),
        "30m",
        "60m",
        "115m",
    ),
)

CLIENTS = (
    Scene(
        "FencepostProduceErrors",
        {
            # After an election clients look for the leader; that is no error to speak of.
            f'fencepost_request_errors_total{{{A},api="Produce",error="NOT_LEADER_OR_FOLLOWER"}}': "+50 60m",
            f'fencepost_request_errors_total{{{A},api="Produce",error="MESSAGE_TOO_LARGE"}}': "+0 10m | +10 20m | +0 30m",
        },
        "9m",
        "20m",
        "45m",
    ),
    Scene(
        "FencepostProduceSlow",
        slow(
            "fencepost_request_duration_seconds",
            f'{A},api="Produce"',
            "fast 10m | slow 20m | fast 20m",
        ),
        "19m",
        "25m",
        "45m",
    ),
    one(
        "FencepostOutOfOrderProducers",
        f"fencepost_producer_out_of_order_total{{{A}}}",
        # Some at a failover, then one that can't go on.
        "+0 5m | +5 1m | +0 20m | +1 30m | +0 20m",
        "12m",
        "50m",
        "65m",
    ),
    one(
        "FencepostProducersFight",
        f"fencepost_transactions_fenced_total{{{A}}}",
        "+0 5m | +5 1m | +0 20m | +1 30m | +0 20m",
        "15m",
        "50m",
        "65m",
    ),
    Scene(
        "FencepostProducerStatesNearLimit",
        {
            f"fencepost_producer_states{{{A}}}": "10 5m | 900000 30m | 10 5m",
            f"fencepost_producer_states_max{{{A}}}": "1000000 40m",
        },
        "15m",
        "25m",
        "36m",
    ),
    Scene(
        "FencepostConnectionsNearLimit",
        {
            f'fencepost_connections{{{A},listener="PLAINTEXT"}}': "10 5m | 950 20m | 10 10m",
            f'fencepost_connections_max{{{A},listener="PLAINTEXT"}}': "1000 35m",
        },
        "9m",
        "15m",
        "26m",
    ),
    one(
        "FencepostConnectionsRefused",
        f'fencepost_connections_refused_total{{{A},listener="PLAINTEXT"}}',
        "+0 5m | +1 20m | +0 20m",
        "8m",
        "15m",
        "35m",
    ),
    one(
        "FencepostPeerAuthentication",
        f'fencepost_authentication_failures_total{{{A},door="peer"}}',
        "+0 5m | +1 10s | +0 20m",
        "4m",
        "7m",
        "20m",
    ),
    one(
        "FencepostAdminAuthentication",
        f'fencepost_authentication_failures_total{{{A},door="admin"}}',
        # Three wrong tokens are a person's.
        "+0 5m | +3 10s | +0 10m | +10 1m | +0 20m",
        "10m",
        "17m",
        "35m",
    ),
    one(
        "FencepostMalformedRequests",
        f'fencepost_requests_malformed_total{{{A},listener="PLAINTEXT"}}',
        "+0 5m | +5 10m | +0 20m",
        "5m",
        "12m",
        "30m",
    ),
)

TRANSACTIONS = (
    one(
        "FencepostHangingTransaction",
        f"fencepost_hanging_transaction_partitions{{{A}}}",
        "0 2m | 1 10m | 0 2m",
        "6m",
        "8m",
        "13m",
    ),
    one(
        "FencepostOldTransaction",
        f"fencepost_open_transaction_seconds{{{A}}}",
        "0 1m | +10 30m | 0 5m",
        "15m",
        "25m",
        "32m",
    ),
    one(
        "FencepostStableOffsetStands",
        f'fencepost_standstill_seconds{{{A},reason="ended"}}',
        "0 1m | +10 6m | 0 2m",
        "2m",
        "4m",
        "8m",
    ),
    one(
        "FencepostMarkersStuck",
        f"fencepost_transaction_markers_stuck_partitions{{{A}}}",
        "0 2m | 1 10m | 0 2m",
        "6m",
        "8m",
        "13m",
    ),
    one(
        "FencepostHalfMessageParked",
        f'fencepost_half_messages{{{A},state="parked"}}',
        "0 2m | 1 10m | 0 2m",
        "1m",
        "3m",
        "13m",
    ),
    Scene(
        "FencepostTransactionsTimeOut",
        {
            f"fencepost_transactions_timed_out_total{{{A}}}": "+0 10m | +1 40m | +0 20m",
            f'fencepost_transactions_ended_total{{{A},outcome="committed"}}': "+1 70m",
            f'fencepost_transactions_ended_total{{{A},outcome="aborted"}}': "+0 10m | +1 40m | +0 20m",
        },
        "20m",
        "35m",
        "60m",
    ),
    one(
        "FencepostCoordinatorFailed",
        f'fencepost_coordinator_partitions{{{A},coordinator="group",state="failed"}}',
        "0 2m | 1 3m | 0 3m",
        "2m50s",
        "3m30s",
        "5m20s",
    ),
    one(
        "FencepostCoordinatorLoading",
        f'fencepost_coordinator_partitions{{{A},coordinator="group",state="loading"}}',
        # As after a restart, then one that takes long.
        "0 1m | 8 30s | 0 2m | 1 5m | 0 2m",
        "5m",
        "6m",
        "9m",
    ),
)

SCENES = (*SERVICE, *QUORUM, *REPLICAS, *DISKS, *PROCESS, *CLIENTS, *TRANSACTIONS)


def _tests(scene: Scene) -> dict[str, object]:
    def at(time: str, fires: bool) -> dict[str, object]:
        labels = f'{{alertname="{scene.alert}"}}'
        shown = [{"labels": labels, "value": 1}] if fires else []
        firing = f'count by (alertname) (ALERTS{{alertname="{scene.alert}",alertstate="firing"}})'
        return {"expr": firing, "eval_time": time, "exp_samples": shown}

    return {
        "name": scene.alert,
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": name, "values": samples(course)} for name, course in scene.series.items()
        ],
        "promql_expr_test": [
            at(scene.quiet, False),
            at(scene.fires, True),
            at(scene.clears, False),
        ],
    }


def as_promtool_tests(scene: Scene, rules: str) -> dict[str, object]:
    """A file for promtool; `rules` names another, which has nothing but what this alert needs."""
    return {
        "rule_files": [rules],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [_tests(scene)],
    }
