"""What is asked of the transactions of a partition, in one form for all versions of each request.

`ticket` is what a parked reply is answered by. `fresh_producer_id` is drawn by the shell when the machine has said
that it needs one (`NEEDS_PRODUCER_ID`), because machines draw nothing.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
)

# A reply: decide this command again, with a producer id that nobody has.
NEEDS_PRODUCER_ID: Final = "needs a producer id"
# The serial number of a connection of this node; later connections have higher ones.
NO_CONNECTION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer begins to work under a transactional id. `producer_id` and epoch: what it had before (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    keep_prepared: bool = False  # KIP-939
    fresh_producer_id: int | None = None
    ticket: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_transaction_version: int = 0  # 2: partitions are added by those who write to them
    connection: int = NO_CONNECTION
    ticket: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """Are these partitions part of this open transaction? Changes nothing."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    ticket: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    bumps_epoch: bool = False  # EndTxn 5 and later: the next transaction has the next epoch
    connection: int = NO_CONNECTION
    fresh_producer_id: int | None = None
    ticket: int = 0


class MarkersDone(NamedTuple):
    """Every partition of this transaction shows how it ended. Up to EndTxn 4 only its beginning tells it from the next."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    done: tuple[MarkersDone, ...]

    @property
    def transactional_ids(self) -> tuple[str, ...]:
        return tuple(each.transactional_id for each in self.done)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactions:
    transactional_ids: tuple[str, ...]


class FindOpened(NamedTuple):
    """When this producer's open transaction began: `Began`, or INVALID_PRODUCER_EPOCH if it has none."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """Empty filters let everything through."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1  # only those that have been open for longer


# -- what is answered, besides ErrorCodes ----------------------------------------------------------


class Initialised(NamedTuple):
    producer_id: int
    producer_epoch: int
    # The prepared transaction that is kept (KIP-939).
    ongoing_producer_id: int = NO_PRODUCER_ID
    ongoing_producer_epoch: int = NO_PRODUCER_EPOCH


class Ended(NamedTuple):
    """The identity that the next transaction has."""

    producer_id: int
    producer_epoch: int


class EndedBefore(Ended):
    """Not by this request: nothing is written, so nothing proves that no other coordinator has opened the next one since."""


# A reply, for the same reason not just `none`: all of these partitions are part of the open transaction already.
ADDED_BEFORE: Final = "added before"


Verified = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """Sent when a transaction's end is committed: have every partition show it, then say `MarkersWritten`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    started_ms: int = NO_TIMESTAMP

    @property
    def done(self) -> MarkersDone:
        who = self.producer_id, self.producer_epoch
        return MarkersDone(self.transactional_id, *who, self.started_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Sent when it is committed that a client has made these partitions part of its transaction: their leaders
    need not ask."""

    producer_id: int
    producer_epoch: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]
