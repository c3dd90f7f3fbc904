"""The registry: one row an API. Dispatch, ApiVersions and the tests all read this table.

Versions are those that the wire code speaks (`cluster/wire/versions.py`); a row here says who answers.
"""

from typing import Final

from fencepost.cluster.wire.api import ADVERTISED_MIN, SUPPORTED, ApiKey

from ..server.dispatch import Api, Begin, Handler, Prepare
from . import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
)


def _api(
    key: ApiKey,
    handle: Handler | None = None,
    *,
    begin: Begin | None = None,
    prepare: Prepare | None = None,
    parks: bool = False,
) -> Api:
    low, high = SUPPORTED[key]
    return Api(
        key=key,
        name=key.name,
        min_version=low,
        max_version=high,
        advertised_min=ADVERTISED_MIN.get(key, low),
        handle=handle,
        begin=begin,
        prepare=prepare,
        parks=parks,
    )


APIS: Final[dict[ApiKey, Api]] = {
    api.key: api
    for api in (
        _api(ApiKey.produce, begin=produce.begin, prepare=produce.prepare),
        _api(ApiKey.fetch, fetch.handle, parks=True),
        _api(ApiKey.list_offsets, list_offsets.handle),
        _api(ApiKey.metadata, metadata.handle),
        _api(ApiKey.offset_commit, offset_commit.handle),
        _api(ApiKey.offset_fetch, offset_fetch.handle),
        _api(ApiKey.find_coordinator, find_coordinator.handle),
        _api(ApiKey.join_group, join_group.handle, parks=True),
        _api(ApiKey.heartbeat, heartbeat.handle),
        _api(ApiKey.leave_group, leave_group.handle),
        _api(ApiKey.sync_group, sync_group.handle, parks=True),
        _api(ApiKey.describe_groups, describe_groups.handle),
        _api(ApiKey.list_groups, list_groups.handle),
        _api(ApiKey.api_versions, api_versions.handle),
        _api(ApiKey.create_topics, create_topics.handle),
        _api(ApiKey.delete_topics, delete_topics.handle),
        _api(ApiKey.delete_records, delete_records.handle),
        _api(ApiKey.init_producer_id, init_producer_id.handle),
        _api(ApiKey.offset_for_leader_epoch, offset_for_leader_epoch.handle),
        _api(ApiKey.add_partitions_to_txn, add_partitions_to_txn.handle),
        _api(ApiKey.add_offsets_to_txn, add_offsets_to_txn.handle),
        _api(ApiKey.end_txn, end_txn.handle),
        _api(ApiKey.txn_offset_commit, txn_offset_commit.handle),
        _api(ApiKey.describe_configs, describe_configs.handle),
        _api(ApiKey.alter_configs, alter_configs.handle),
        _api(ApiKey.describe_log_dirs, describe_log_dirs.handle),
        _api(ApiKey.create_partitions, create_partitions.handle),
        _api(ApiKey.delete_groups, delete_groups.handle),
        _api(ApiKey.incremental_alter_configs, incremental_alter_configs.handle),
        _api(ApiKey.elect_leaders, elect_leaders.handle),
        _api(ApiKey.alter_partition_reassignments, alter_partition_reassignments.handle),
        _api(ApiKey.list_partition_reassignments, list_partition_reassignments.handle),
        _api(ApiKey.update_features, update_features.handle),
        _api(ApiKey.unregister_broker, unregister_broker.handle),
        _api(ApiKey.offset_delete, offset_delete.handle),
        _api(ApiKey.describe_quorum, describe_quorum.handle),
        _api(ApiKey.describe_cluster, describe_cluster.handle),
        _api(ApiKey.describe_producers, describe_producers.handle),
        _api(ApiKey.describe_transactions, describe_transactions.handle),
        _api(ApiKey.list_transactions, list_transactions.handle),
        _api(ApiKey.consumer_group_heartbeat, consumer_group_heartbeat.handle),
        _api(ApiKey.consumer_group_describe, consumer_group_describe.handle),
        _api(ApiKey.list_config_resources, list_config_resources.handle),
        _api(ApiKey.describe_topic_partitions, describe_topic_partitions.handle),
        _api(ApiKey.add_raft_voter, add_raft_voter.handle),
        _api(ApiKey.remove_raft_voter, remove_raft_voter.handle),
    )
}
