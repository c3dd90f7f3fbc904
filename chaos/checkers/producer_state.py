"""What a replica knows of its producers is what its log says of them.

INVARIANT  a producer's epoch, its last five batches and its open transaction, as a replica has them, equal those of a
           plain replay of its log.
PREVENTS   a retry after a failover, a restart or a truncation that is written again, or refused though it follows.
PROVED BY  tests/chaos/test_cluster_checkers.py::test_a_producer_state_that_the_log_does_not_show_is_an_anomaly
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from .history import Anomaly
from .observations import Batch

WINDOW: Final = 5
SEQUENCES: Final = 1 << 31
NO_SEQUENCE: Final = -1


class Known(NamedTuple):
    """A producer's epoch and its last batches, each (first sequence, last sequence, first offset, last offset).

    `open_since` is the first offset of its open transaction, -1 for none.
    """

    producer_epoch: int
    batches: tuple[tuple[int, int, int, int], ...]
    open_since: int = -1


def replay(batches: Iterable[Batch], before: dict[int, Known] | None = None) -> dict[int, Known]:
    """The slow twin of `replication/log/producers_machine.py`, for the batches of a log from its start.

    `before` is what the batches before these came to; it is gone on with.
    """
    found: dict[int, Known] = {} if before is None else before
    for batch in batches:
        if batch.producer_id < 0:
            continue
        if batch.marker is not None and batch.marker.is_emptied:
            continue  # of its transaction nothing is left, and it says nothing of its producer; as in Kafka
        known = found.get(batch.producer_id)
        window = known.batches if known and known.producer_epoch == batch.producer_epoch else ()
        if batch.marker is not None:
            found[batch.producer_id] = Known(batch.producer_epoch, window)
            continue
        open_since = known.open_since if known else -1
        if batch.is_transactional and open_since < 0:
            open_since = batch.base_offset
        count = batch.next_offset - batch.base_offset
        first, last = batch.base_sequence, (batch.base_sequence + count - 1) % SEQUENCES
        if first == NO_SEQUENCE:  # a coordinator's, for a producer; the rest is as Kafka counts it
            first, last = SEQUENCES - count, NO_SEQUENCE
        newest = (first, last, batch.base_offset, batch.next_offset - 1)
        found[batch.producer_id] = Known(
            batch.producer_epoch, (*window, newest)[-WINDOW:], open_since
        )
    return found


def differing(one: dict[int, Known], other: dict[int, Known]) -> list[int]:
    """The producers of which the two know not the same."""
    return [each for each in sorted(one.keys() | other.keys()) if one.get(each) != other.get(each)]


def lacking(
    node: int, key: str, wanted: dict[int, Known], states: dict[int, Known]
) -> list[Anomaly]:
    """What a node does not know of what its log still says, when compaction has taken a part of that."""
    return [
        Anomaly(
            "producer-state",
            key,
            f"node {node} has {states.get(producer)} of producer {producer}, what is left of its log has {has}",
        )
        for producer, has in sorted(wanted.items())
        if not _covers(states.get(producer), has)
    ]


def _covers(state: Known | None, has: Known) -> bool:
    if state is None or state.producer_epoch < has.producer_epoch:
        return False
    if state.producer_epoch > has.producer_epoch or not has.batches:
        return True
    (_, _, _, last_offset), newest = has.batches[-1], state.batches[-1:]
    return bool(newest) and newest[0][3] >= last_offset


def check(node: int, key: str, wanted: dict[int, Known], states: dict[int, Known]) -> list[Anomaly]:
    """What a node has against what a replay of its log says."""
    return [
        Anomaly(
            "producer-state",
            key,
            f"node {node} has {states.get(producer)} of producer {producer}, "
            f"its log has {wanted.get(producer)}",
        )
        for producer in differing(wanted, states)
    ]
