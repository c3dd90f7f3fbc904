"""The replicas of a compacted log hold the same table, however far each of them is cleaned."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import read_control, read_records
from fencepost.node.broker import Broker
from fencepost.replication.log.log import Log

from ..checkers.history import Anomaly
from .parsed_log import batches_between

Find = Callable[[str], Any]  # of a node's file system
At = tuple[int, bytes | None]  # offset, value


def compare_tables(
    running: Mapping[BrokerId, Broker], finds: Mapping[BrokerId, Find]
) -> tuple[int, list[Anomaly]]:
    """How many logs were compared, and where two replicas differ. For the end, when all replicas are in the ISR.

    What one of them alone has is not committed, and not compared: a session that runs out makes a coordinator write.
    """
    found: dict[str, tuple[int, dict[bytes, bytes]]] = {}
    # Replicas of a log that is deleted from its beginning on, too, need not begin at the same offset.
    starts: dict[str, int] = defaultdict(int)
    ends: dict[str, int] = {}
    committed: dict[str, int] = defaultdict(int)
    for broker in running.values():
        for name, partition in broker.replicas.partitions.items():
            key, log = f"{partition.topic_id}-{name}", partition.log
            starts[key] = max(starts[key], log.log_start_offset)
            ends[key] = min(ends.get(key, log.log_end_offset), log.log_end_offset)
            committed[key] = max(committed[key], partition.high_watermark)
    anomalies = []
    for node_id, broker in running.items():
        for name, partition in broker.replicas.partitions.items():
            if not partition.log.config.compact:
                continue
            key = f"{partition.topic_id}-{name}"
            if partition.log.log_end_offset < committed[key]:
                what = f"node {node_id} ends at {partition.log.log_end_offset}, committed is {committed[key]}"
                anomalies.append(Anomaly("tables-differ", str(name), what))
            table = _table(finds[node_id], partition.log, starts[key], ends[key])
            first, known = found.setdefault(key, (node_id, table))
            if known != table:
                differ = [each for each in {**known, **table} if known.get(each) != table.get(each)]
                what = f"nodes {first} and {node_id} differ in {differ[:3]}"
                anomalies.append(Anomaly("tables-differ", str(name), what))
    return len(found), anomalies


def _table(find: Find, log: Log, start: int, end: int) -> dict[bytes, bytes]:
    table: dict[bytes, At] = {}
    pending: dict[int, dict[bytes, At]] = {}
    for content, at, header in batches_between(find, log, start, end):
        records = read_records(content, at)
        if header.is_control:
            marker = read_control(records[0]) if records else None
            ended = pending.pop(header.producer_id, {})
            _take(table, ended if marker is not None and marker.commit else {})
            continue
        into = pending.setdefault(header.producer_id, {}) if header.is_transactional else table
        _take(into, {each.key or b"": (each.offset, each.value) for each in records})
    return {key: value for key, (_, value) in table.items() if value is not None}


def _take(table: dict[bytes, At], more: Mapping[bytes, At]) -> None:
    """The newest is by offset: what was committed later may have been written before."""
    for key, at in more.items():
        if key not in table or table[key][0] < at[0]:
            table[key] = at
