"""What a producer had on its way behind a batch that was sent back for now is sent back likewise, not as out of order.

INVARIANT  a batch of an idempotent producer is called out of order only if the one that is missing in front of it is
           not one that was sent back just before, to be tried again as it is: by this leader, or on the batch's own
           connection before this partition was here, or led; or, it may be, by the former leader. Of several that were
           sent back each is waited for in its turn.
PREVENTS   librdkafka taking OUT_OF_ORDER_SEQUENCE_NUMBER for a reason to begin a new epoch, under which it sends again
           all that is not acknowledged: a batch that was written, and waited for its followers when the lead moved, is
           then in the log twice.
PROVED BY  tests/replication/test_sent_back.py::test_what_follows_a_batch_that_was_sent_back_is_not_out_of_order

Kafka answers OUT_OF_ORDER here; Java's producer tries all of them again in order, whatever the answer is.
"""

from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import BatchHeader

from .log.producer_snapshot import SEQUENCE_MAX, ProducerState

IN_FLIGHT_MAX: Final = 5  # batches that an idempotent producer may have on their way
PRODUCERS_MAX: Final = 1_000  # the oldest go first
TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
    }
)


class Missing(NamedTuple):
    """What is waited for of one producer."""

    epoch: int
    sequence: int
    error: ErrorCode  # what it was told, and what those behind it are
    more: int  # how many of those there may still be; without any its producer has given it up
    last: int  # the sequence of the last one that was sent back


class SentBack:
    """Of one partition; made when first needed. Empty, and then false, when all of them came again."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[int, Missing] = {}  # by producer id

    def __bool__(self) -> bool:
        return bool(self._first)

    def known(self, producer: ProducerState | None) -> None:
        """What its log has of a producer by now: what was sent back may have been written by another leader meanwhile."""
        if producer is not None:
            self._came(producer.producer_id, producer.producer_epoch, producer.last_sequence)

    def note(self, batch: BatchHeader, error: ErrorCode) -> None:
        if batch.base_sequence < 0 or error not in TRIED_AGAIN:
            return
        known = self._first.get(batch.producer_id)
        if known and known.epoch > batch.producer_epoch:
            return  # of one that was fenced
        self._first.pop(batch.producer_id, None)
        if known and known.epoch == batch.producer_epoch and known.sequence < batch.base_sequence:
            self._first[batch.producer_id] = _with(known, batch)
            return
        first = batch.base_sequence
        missing = Missing(batch.producer_epoch, first, error, IN_FLIGHT_MAX - 1, first)
        self._put(batch.producer_id, missing)

    def _put(self, producer_id: int, missing: Missing) -> None:
        if len(self._first) >= PRODUCERS_MAX:
            del self._first[next(iter(self._first))]
        self._first[producer_id] = missing

    def note_sent_away(self, batch: BatchHeader) -> None:
        """On its connection, before this partition was here or led (`node/server/overtaking.py`); told again with each behind it."""
        known = self._first.get(batch.producer_id)
        if known is None or known[:2] != (batch.producer_epoch, batch.base_sequence):
            self.note(batch, ErrorCode.not_leader_or_follower)

    def note_not_come(self, producer: ProducerState, batch: BatchHeader) -> None:
        """The lead came here since this producer wrote: the one before this batch may be on its way from the former leader."""
        missing = 0  # of another epoch; or all numbers are used up
        if (
            batch.producer_epoch == producer.producer_epoch
            and producer.last_sequence < SEQUENCE_MAX
        ):
            missing = producer.last_sequence + 1
        known = self._first.get(batch.producer_id)
        if known is None or known[:2] != (batch.producer_epoch, missing):
            error = ErrorCode.not_leader_or_follower
            of_it = Missing(batch.producer_epoch, missing, error, IN_FLIGHT_MAX, missing)
            self._put(batch.producer_id, of_it)

    def was_behind(self, batch: BatchHeader) -> ErrorCode | None:
        """What a batch that is out of order is told instead, if it may have been on its way behind the one sent back."""
        known = self._first.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            return None
        if batch.base_sequence <= known.sequence or not known.more:
            return None
        self._first[batch.producer_id] = _with(known, batch)._replace(more=known.more - 1)
        return known.error

    def written(self, batch: BatchHeader) -> None:
        """Now, or before: then what was sent back came again, and is known."""
        self._came(batch.producer_id, batch.producer_epoch, batch.last_sequence)

    def _came(self, producer_id: int, epoch: int, last_sequence: int) -> None:
        """All of a producer's up to this one: the next that was sent back is the one to wait for."""
        known = self._first.get(producer_id)
        if known is None or (epoch, last_sequence) < known[:2]:
            return
        del self._first[producer_id]
        if epoch == known.epoch and last_sequence < known.last and known.more:
            self._put(producer_id, known._replace(sequence=last_sequence + 1, more=IN_FLIGHT_MAX))


def _with(known: Missing, batch: BatchHeader) -> Missing:
    """This one is sent back, too."""
    return known._replace(last=max(known.last, batch.base_sequence))
