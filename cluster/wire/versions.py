"""Kafka's APIs by number and name, and the versions of each that this wire code speaks.

Both come from asking Apache Kafka 4.3.0 with ApiVersions (`tests/cluster/wire/kafka_4_3_api_versions.json`) and
from kio 0.6.5's classes: the oldest version that Kafka 4 accepts to the newest that both have as stable; and of
InitProducerId the one after it, which Kafka has as unstable.
"""

import enum
from typing import Final


class ApiKey(enum.IntEnum):
    """Every API of Kafka 4.3 by its number. 4 to 7 were ZooKeeper's and are gone."""

    produce = 0
    fetch = 1
    list_offsets = 2
    metadata = 3
    offset_commit = 8
    offset_fetch = 9
    find_coordinator = 10
    join_group = 11
    heartbeat = 12
    leave_group = 13
    sync_group = 14
    describe_groups = 15
    list_groups = 16
    sasl_handshake = 17
    api_versions = 18
    create_topics = 19
    delete_topics = 20
    delete_records = 21
    init_producer_id = 22
    offset_for_leader_epoch = 23
    add_partitions_to_txn = 24
    add_offsets_to_txn = 25
    end_txn = 26
    write_txn_markers = 27
    txn_offset_commit = 28
    describe_acls = 29
    create_acls = 30
    delete_acls = 31
    describe_configs = 32
    alter_configs = 33
    alter_replica_log_dirs = 34
    describe_log_dirs = 35
    sasl_authenticate = 36
    create_partitions = 37
    create_delegation_token = 38
    renew_delegation_token = 39
    expire_delegation_token = 40
    describe_delegation_token = 41
    delete_groups = 42
    elect_leaders = 43
    incremental_alter_configs = 44
    alter_partition_reassignments = 45
    list_partition_reassignments = 46
    offset_delete = 47
    describe_client_quotas = 48
    alter_client_quotas = 49
    describe_user_scram_credentials = 50
    alter_user_scram_credentials = 51
    vote = 52
    begin_quorum_epoch = 53
    end_quorum_epoch = 54
    describe_quorum = 55
    alter_partition = 56
    update_features = 57
    envelope = 58
    fetch_snapshot = 59
    describe_cluster = 60
    describe_producers = 61
    broker_registration = 62
    broker_heartbeat = 63
    unregister_broker = 64
    describe_transactions = 65
    list_transactions = 66
    allocate_producer_ids = 67
    consumer_group_heartbeat = 68
    consumer_group_describe = 69
    controller_registration = 70
    get_telemetry_subscriptions = 71
    push_telemetry = 72
    assign_replicas_to_dirs = 73
    list_config_resources = 74
    describe_topic_partitions = 75
    share_group_heartbeat = 76
    share_group_describe = 77
    share_fetch = 78
    share_acknowledge = 79
    add_raft_voter = 80
    remove_raft_voter = 81
    update_raft_voter = 82
    initialize_share_group_state = 83
    read_share_group_state = 84
    write_share_group_state = 85
    delete_share_group_state = 86
    read_share_group_state_summary = 87
    streams_group_heartbeat = 88
    streams_group_describe = 89
    describe_share_group_offsets = 90
    alter_share_group_offsets = 91
    delete_share_group_offsets = 92


SUPPORTED: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.produce: (3, 13),
    ApiKey.fetch: (4, 18),
    ApiKey.list_offsets: (1, 11),
    ApiKey.metadata: (0, 13),
    ApiKey.offset_commit: (2, 10),
    ApiKey.offset_fetch: (1, 10),
    ApiKey.find_coordinator: (0, 6),
    ApiKey.join_group: (0, 9),
    ApiKey.heartbeat: (0, 4),
    ApiKey.leave_group: (0, 5),
    ApiKey.sync_group: (0, 5),
    ApiKey.describe_groups: (0, 6),
    ApiKey.list_groups: (0, 5),
    ApiKey.sasl_handshake: (0, 1),
    ApiKey.api_versions: (0, 4),
    ApiKey.create_topics: (2, 7),
    ApiKey.delete_topics: (1, 6),
    ApiKey.delete_records: (0, 2),
    ApiKey.init_producer_id: (0, 6),  # 6 is two-phase commit (KIP-939), unstable in 4.3
    ApiKey.offset_for_leader_epoch: (2, 4),
    ApiKey.add_partitions_to_txn: (0, 5),
    ApiKey.add_offsets_to_txn: (0, 4),
    ApiKey.end_txn: (0, 5),
    ApiKey.write_txn_markers: (1, 2),
    ApiKey.txn_offset_commit: (0, 5),
    ApiKey.describe_acls: (1, 3),
    ApiKey.create_acls: (1, 3),
    ApiKey.delete_acls: (1, 3),
    ApiKey.describe_configs: (1, 4),
    ApiKey.alter_configs: (0, 2),
    ApiKey.alter_replica_log_dirs: (1, 2),
    ApiKey.describe_log_dirs: (1, 5),
    ApiKey.sasl_authenticate: (0, 2),
    ApiKey.create_partitions: (0, 3),
    ApiKey.delete_groups: (0, 2),
    ApiKey.elect_leaders: (0, 2),
    ApiKey.incremental_alter_configs: (0, 1),
    ApiKey.alter_partition_reassignments: (0, 1),
    ApiKey.list_partition_reassignments: (0, 0),
    ApiKey.offset_delete: (0, 0),
    ApiKey.describe_client_quotas: (0, 1),
    ApiKey.alter_client_quotas: (0, 1),
    ApiKey.describe_user_scram_credentials: (0, 0),
    ApiKey.alter_user_scram_credentials: (0, 0),
    ApiKey.describe_quorum: (0, 2),
    ApiKey.update_features: (0, 2),
    ApiKey.describe_cluster: (0, 2),
    ApiKey.describe_producers: (0, 0),
    ApiKey.unregister_broker: (0, 0),
    ApiKey.describe_transactions: (0, 0),
    ApiKey.list_transactions: (0, 2),
    ApiKey.consumer_group_heartbeat: (0, 1),
    ApiKey.consumer_group_describe: (0, 1),
    ApiKey.get_telemetry_subscriptions: (0, 0),
    ApiKey.push_telemetry: (0, 0),
    ApiKey.list_config_resources: (0, 1),
    ApiKey.describe_topic_partitions: (0, 0),
    ApiKey.add_raft_voter: (0, 1),
    ApiKey.remove_raft_voter: (0, 0),
}

ADVERTISED_MIN: Final = {ApiKey.produce: 0}
"""Kafka 4 refuses Produce 0 to 2 and says in ApiVersions that it takes them (KAFKA-18659): librdkafka before 2.8
took a broker without them for one that knows no compression."""
