"""Batches of one connection that were sent away before a partition here could judge them.

INVARIANT  of a producer that a partition does not know, no batch is written behind one with a lower sequence that
           came by the same connection and was sent away to be tried again.
PREVENTS   five batches in flight while their topic, or the lead of its partition, comes to this node: the first three
           find nothing here, the fourth finds the partition, which takes any sequence of a producer that is new to
           it; the first is then out of order for ever, and the client ends.
PROVED BY  tests/node/test_refused_first_batches.py::test_a_batch_does_not_overtake_one_that_came_before_its_topic

A partition remembers what it refuses itself (`replication/log/verifications_machine.py`); this is for the time when
it was not here, or did not lead. Only one connection has to be looked at: whoever lost it sends all again, in order.
"""

from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.topic_names import TOPIC_NAME_LENGTH_MAX
from fencepost.cluster.wire.batch import BatchHeader, BatchRefused, parse_header
from fencepost.replication.log.producer_snapshot import is_after

# Remembered a connection; the oldest go first. As many as a producer may have partitions on one node, under a kilobyte each.
REFUSED_MAX: Final = 10_000
# And for all connections of a listener: what is sent away was not looked at, and anybody may send it.
REFUSED_BY_ALL_MAX: Final = 200_000
# What a client tries again as it was. After anything else it gives the batch up, and must not be held to it.
TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.kafka_storage_error,
    }
)

Place = tuple[UUID | str, int]  # a topic as the client names it, and a partition


class Room:
    """What connections share: for how many more batches there is room."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = REFUSED_BY_ALL_MAX


class RefusedBatches:
    """Of one connection. Empty, and then false, for nearly all."""

    __slots__ = ("_lowest", "_room")

    def __init__(self, room: Room) -> None:
        self._room: Room | None = room  # None when the connection has ended
        # place, producer id, producer epoch -> the batch with the lowest sequence that was sent away
        self._lowest: dict[tuple[Place, int, int], BatchHeader] = {}

    def __bool__(self) -> bool:
        return bool(self._lowest)

    def note(self, place: Place, records: memoryview) -> None:
        header, room = _header_of(records), self._room
        if header is None or room is None or len(str(place[0])) > TOPIC_NAME_LENGTH_MAX:
            return  # no topic has that name, or ever will
        key = (place, header.producer_id, header.producer_epoch)
        known = self._lowest.get(key)
        if known is None:
            if self._lowest and (len(self._lowest) >= REFUSED_MAX or not room.left):
                self._drop(next(iter(self._lowest)))
            if not room.left:
                return
            room.left -= 1
        if known is None or is_after(known.base_sequence, header.base_sequence):
            self._lowest[key] = header

    def before(self, place: Place, records: memoryview) -> BatchHeader | None:
        """What has to come before this batch. Forgotten when it comes itself."""
        header = _header_of(records)
        if header is None:
            return None
        key = (place, header.producer_id, header.producer_epoch)
        lowest = self._lowest.get(key)
        if lowest is not None and not is_after(header.base_sequence, lowest.base_sequence):
            self._drop(key)
            return None
        return lowest

    def forget(self, place: Place, records: memoryview) -> None:
        """This batch is written: so what was sent away is, too, and came by another connection, or to another leader."""
        if (header := _header_of(records)) is not None:
            self._drop((place, header.producer_id, header.producer_epoch))

    def close(self) -> None:
        """The connection has ended: nothing can come by it any more."""
        if self._room is not None:
            self._room.left += len(self._lowest)
        self._lowest, self._room = {}, None

    def _drop(self, key: tuple[Place, int, int]) -> None:
        if self._lowest.pop(key, None) is not None and self._room is not None:
            self._room.left += 1


def _header_of(records: memoryview) -> BatchHeader | None:
    """Of a batch that has a place in a producer's sequence; appending says what is wrong with any other."""
    try:
        header = parse_header(records)
    except BatchRefused:
        return None
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None
