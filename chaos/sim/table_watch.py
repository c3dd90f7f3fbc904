"""The replicas of a compacted log hold the same table, however far each of them is cleaned."""

from collections.abc import Callable, Mapping
from typing import Any

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import read_control, read_records
from fencepost.node.broker import Broker
from fencepost.replication.log.log import Log

from ..checkers.history import Anomaly
from .parsed_log import batches_between

Find = Callable[[str], Any]  # of a node's file system


def compare_tables(
    running: Mapping[BrokerId, Broker], finds: Mapping[BrokerId, Find]
) -> tuple[int, list[Anomaly]]:
    """How many logs were compared, and where two replicas differ. For the end, when all of them have everything."""
    found: dict[str, tuple[int, dict[bytes, bytes]]] = {}
    anomalies = []
    for node_id, broker in running.items():
        for name, partition in broker.replicas.partitions.items():
            if not partition.log.config.compact:
                continue
            table = _table(finds[node_id], partition.log)
            first, known = found.setdefault(f"{partition.topic_id}-{name}", (node_id, table))
            if known != table:
                differ = [key for key in {**known, **table} if known.get(key) != table.get(key)]
                what = f"nodes {first} and {node_id} differ in {differ[:3]}"
                anomalies.append(Anomaly("tables-differ", str(name), what))
    return len(found), anomalies


def _table(find: Find, log: Log) -> dict[bytes, bytes]:
    table: dict[bytes, bytes | None] = {}
    pending: dict[int, dict[bytes, bytes | None]] = {}
    for content, at, header in batches_between(find, log, 0, log.log_end_offset):
        records = read_records(content, at)
        if header.is_control:
            marker = read_control(records[0]) if records else None
            ended = pending.pop(header.producer_id, {})
            table.update(ended if marker is not None and marker.commit else {})
            continue
        into = pending.setdefault(header.producer_id, {}) if header.is_transactional else table
        into.update((each.key or b"", each.value) for each in records)
    return {key: value for key, value in table.items() if value is not None}
