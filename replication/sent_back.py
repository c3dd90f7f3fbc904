"""What a producer had on its way behind a batch that was sent back for now is sent back likewise, not as out of order.

INVARIANT  a batch of an idempotent producer is called out of order only if the one that is missing in front of it is
           not one that was sent back just before, to be tried again as it is: by this leader, or on the batch's own
           connection before this partition was here, or led; or, it may be, by the former leader.
PREVENTS   librdkafka taking OUT_OF_ORDER_SEQUENCE_NUMBER for a reason to begin a new epoch, under which it sends again
           all that is not acknowledged: a batch that was written, and waited for its followers when the lead moved, is
           then in the log twice.
PROVED BY  tests/replication/test_sent_back.py::test_what_follows_a_batch_that_was_sent_back_is_not_out_of_order

Kafka answers OUT_OF_ORDER here; Java's producer tries all of them again in order, whatever the answer is.
"""

from typing import Final

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


class SentBack:
    """Of one partition; made when first needed. Empty, and then false, when all of them came again."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        # producer id -> epoch, sequence, what it was told, and how many more may have been on their way behind it
        self._first: dict[int, tuple[int, int, ErrorCode, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    def known(self, producer: ProducerState | None) -> None:
        """What its log has of a producer by now: what was sent back may have been written by another leader meanwhile."""
        noted = None if producer is None else self._first.get(producer.producer_id)
        if producer is None or noted is None:
            return
        epoch, sequence, _, _ = noted
        if (producer.producer_epoch, producer.last_sequence) >= (epoch, sequence):
            del self._first[producer.producer_id]

    def note(self, batch: BatchHeader, error: ErrorCode) -> None:
        if batch.base_sequence < 0 or error not in TRIED_AGAIN:
            return
        known = self._first.get(batch.producer_id)
        if known and known[0] > batch.producer_epoch:
            return  # of one that was fenced
        self._first.pop(batch.producer_id, None)
        if known and known[0] == batch.producer_epoch and known[1] < batch.base_sequence:
            self._first[batch.producer_id] = known
            return
        self._put(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, error, IN_FLIGHT_MAX - 1
        )

    def _put(
        self, producer_id: int, epoch: int, sequence: int, error: ErrorCode, more: int
    ) -> None:
        if len(self._first) >= PRODUCERS_MAX:
            del self._first[next(iter(self._first))]
        self._first[producer_id] = epoch, sequence, error, more

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
            self._put(batch.producer_id, batch.producer_epoch, missing, error, IN_FLIGHT_MAX)

    def was_behind(self, batch: BatchHeader) -> ErrorCode | None:
        """What a batch that is out of order is told instead, if it may have been on its way behind the one sent back."""
        known = self._first.get(batch.producer_id)
        if known is None or known[0] != batch.producer_epoch or batch.base_sequence <= known[1]:
            return None
        epoch, sequence, error, more = known
        if not more:
            return None  # its producer has given that one up
        self._first[batch.producer_id] = (epoch, sequence, error, more - 1)
        return error

    def written(self, batch: BatchHeader) -> None:
        """Now, or before: then what was sent back came again, and is known."""
        known = self._first.get(batch.producer_id)
        is_later = known and known[0] == batch.producer_epoch and known[1] > batch.base_sequence
        if known is not None and not is_later:
            del self._first[batch.producer_id]
