"""The replicas of a partition hold the same bytes, as far as all of them go."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.log.log import Log
from fencepost.replication.partition import Partition

from ..checkers.history import Anomaly
from .parsed_log import batches_between

Find = Callable[[str], Any]  # of a node's file system


def compare_bytes(
    key: str, members: Sequence[tuple[BrokerId, Partition]], find: Callable[[BrokerId], Find]
) -> list[Anomaly]:
    logs = [(node_id, partition.log) for node_id, partition in members]
    start = max(log.log_start_offset for _, log in logs)
    end = min(log.log_end_offset for _, log in logs)
    crcs = {node_id: _crc(find(node_id), log, start, end) for node_id, log in logs}
    if len(set(crcs.values())) < 2:
        return []
    what = f"nodes have other bytes from {start} to {end}: {crcs}"
    return [Anomaly("diverged", key, what)]


def _crc(find: Find, log: Log, start: int, end: int) -> int:
    crc = 0
    for content, at, header in batches_between(find, log, start, end):
        crc = zlib.crc32(memoryview(content)[at : at + header.size], crc)
    return crc
