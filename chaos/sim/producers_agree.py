"""The replicas of a log that begins behind what was deleted know the same producers: no replay says any more who wrote that.

INVARIANT  members of an ISR whose logs end at the same offset have the same producers' state.
PREVENTS   a replica that copied what was left, knows nobody whose batches were deleted, and writes a retry again when it leads.
PROVED BY  tests/sim/test_producers_agree.py::test_a_replica_that_knows_less_than_its_leader_is_an_anomaly
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.log.log import Log
from fencepost.replication.partition import Partition

from ..checkers.history import Anomaly
from ..checkers.producer_state import Known, differing, lacking
from .parsed_log import ParsedLog


def compare_producers(key: str, members: Iterable[tuple[BrokerId, Partition]]) -> list[Anomaly]:
    """Of those that end where the first one does. Logs that begin at 0 are compared with a replay of themselves instead."""
    known: dict[BrokerId, dict[int, Known]] = {}
    end: int | None = None
    for node_id, partition in members:
        log = partition.log
        end = log.log_end_offset if end is None else end
        if log.log_start_offset and log.log_end_offset == end:
            known[node_id] = known_of(log)
    found = []
    for (one, ours), (other, theirs) in pairwise(known.items()):
        for producer in differing(ours, theirs):
            what = (
                f"both end at {end}; of producer {producer} node {one} has"
                f" {ours.get(producer)}, node {other} has {theirs.get(producer)}"
            )
            found.append(Anomaly("producer-state", key, what))
    return found


def know_their_logs(
    key: str, members: Iterable[tuple[BrokerId, Partition]], find: Callable[[BrokerId], Any]
) -> list[Anomaly]:
    """Of logs that are being compacted, each by itself: all that is left in one its node knows."""
    found = []
    for node_id, partition in members:
        parsed = ParsedLog(partition.log)
        parsed.up_to_now(find(node_id))
        found += lacking(node_id, key, parsed.producers(), known_of(partition.log))
    return found


def known_of(log: Log) -> dict[int, Known]:
    """All producers that this node knows of it."""
    return {each.producer_id: _known(each) for each in log.producers.states()}


def _known(state: Any) -> Known:
    window = (
        (each.first_sequence, each.last_sequence, each.first_offset, each.last_offset)
        for each in state.batches
    )
    return Known(state.producer_epoch, tuple(window), state.txn_first_offset)
