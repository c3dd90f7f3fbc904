"""Scenes of one process, and of what clients and transactions meet."""

from scene import A, B, Scene, one, slow

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
            # Two thirds may be those of many partitions.
            f"process_open_fds{{{A}}}": "666 2m | 900 10m | 666 2m",
            f"process_max_fds{{{A}}}": "1000 14m",
        },
        "6m",
        "8m",
        "13m",
    ),
    Scene(
        "FencepostClockJumped",
        {
            # b was never seen with another number, and has been running for long; a comes back with it at 6m.
            f"fencepost_clock_jumps_total{{{A}}}": "gone 6m | 1 54m",
            f"process_start_time_seconds{{{A}}}": "gone 6m | 350 54m",
            f"fencepost_clock_jumps_total{{{B}}}": "1 60m",
            f"process_start_time_seconds{{{B}}}": "-9000 60m",
        },
        "5m",
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
            f"fencepost_connections_max{{{A}}}": "1000 35m",
        },
        "9m",
        "15m",
        "26m",
    ),
    one(
        "FencepostAcceptingPaused",
        f"fencepost_accept_pauses_total{{{A}}}",
        # Five a second while it lasts.
        "+0 5m | +50 5m | +0 10m",
        "5m",
        "8m",
        "14m",
    ),
    one(
        "FencepostAddressWrong",
        f'fencepost_advertised_address{{{A},listener="PLAINTEXT",state="unresolved"}}',
        "0 5m | 1 10m | 0 5m",
        "9m",
        "11m",
        "16m",
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
        # One that came too late, and then somebody who tries all the time.
        "+0 5m | +1 10s | +0 15m | +1 10m | +0 20m",
        "11m",
        "27m",
        "45m",
    ),
    one(
        "FencepostPeerCertificateExpires",
        # Two weeks and ten minutes ahead; at 30m the node starts with a new one.
        f'fencepost_peer_certificate_not_after_timestamp_seconds{{{A},store="keystore"}}',
        "1210200 30m | 9000000 10m",
        "9m",
        "12m",
        "31m",
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
        "FencepostRequestFailed",
        f'fencepost_requests_failed_total{{{A},listener="PLAINTEXT"}}',
        "+0 5m | +1 10s | +0 40m",
        "4m",
        "10m",
        "25m",
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
