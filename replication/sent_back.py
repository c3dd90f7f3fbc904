"""What a producer had on its way behind a batch that was sent back for now is sent back likewise, not as out of order.

INVARIANT  a batch of an idempotent producer is called out of order only if the one that is missing in front of it is
           not one that was sent back just before, to be tried again as it is: by this leader, or on the batch's own
           connection before this partition was here, or led; or, it may be, by the former leader. Of several that were
           sent back each is waited for in its turn. (Of producers that are unknown here: `beginnings.py`.)
PREVENTS   librdkafka taking OUT_OF_ORDER_SEQUENCE_NUMBER for a reason to begin a new epoch, under which it sends again
           all that is not acknowledged: a batch that was written, and waited for its followers when the lead moved, is
           then in the log twice.
PROVED BY  tests/replication/test_sent_back.py::test_what_follows_a_batch_that_was_sent_back_is_not_out_of_order

Kafka answers OUT_OF_ORDER here; Java's producer tries all of them again in order, whatever the answer is.
"""

from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import BatchHeader

from .beginnings import Beginnings
from .log.producer_snapshot import ProducerState, is_after, sequence_plus
from .places import IN_FLIGHT_MAX, Places

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
    away: BatchHeader | None = None  # the one that was sent away on its connection, that time


class SentBack:
    """Of one partition; made when first needed. Empty, and then false, when all of them came again."""

    __slots__ = ("_first", "beginnings", "now_ms")

    def __init__(self) -> None:
        self._first: Places[Missing] = Places()
        self.beginnings = Beginnings()
        self.now_ms = 0  # by the steady clock, as the partition told last

    def __bool__(self) -> bool:
        return bool(self._first or self.beginnings)

    def known(self, producer: ProducerState | None) -> None:
        """What its log has of a producer by now: what was sent back may have been written by another leader meanwhile."""
        if producer is not None and producer.batches:
            self._came(producer.producer_id, producer.producer_epoch, producer.last_sequence)

    def note(
        self, batch: BatchHeader, error: ErrorCode, *, away: BatchHeader | None = None
    ) -> None:
        if batch.base_sequence < 0 or error not in TRIED_AGAIN:
            return
        known = self._first.of(batch.producer_id)
        if known and known.epoch > batch.producer_epoch:
            return  # of one that was fenced
        first, epoch = batch.base_sequence, batch.producer_epoch
        if known and known.epoch == epoch and is_after(first, known.sequence):
            self._keep(batch.producer_id, _with(known, first))
        else:
            missing = Missing(epoch, first, error, IN_FLIGHT_MAX - 1, first, away)
            self._wait_for(batch.producer_id, missing, known)

    def _keep(self, producer_id: int, missing: Missing) -> None:
        self._first.take(producer_id, missing, self.now_ms)

    def _wait_for(self, producer_id: int, missing: Missing, before: Missing | None) -> None:
        """Those behind it that were sent back already are waited for in their turn."""
        if before is not None and before.epoch == missing.epoch:
            missing = _with(missing, before.last)
        self._keep(producer_id, missing)

    def note_sent_away(self, batch: BatchHeader) -> None:
        """On its connection, before this partition was here or led (`node/server/overtaking.py`); told again with each behind it."""
        known = self._first.of(batch.producer_id)
        if known is None or known.away is not batch:
            self.note(batch, ErrorCode.not_leader_or_follower, away=batch)

    def note_not_come(self, producer: ProducerState, batch: BatchHeader) -> None:
        """The lead came here since this producer wrote: the one before this batch may be on its way from the former leader."""
        is_same = batch.producer_epoch == producer.producer_epoch
        missing = sequence_plus(producer.last_sequence, 1) if is_same else 0
        known = self._first.of(batch.producer_id)
        if known is None or known[:2] != (batch.producer_epoch, missing):
            error = ErrorCode.not_leader_or_follower
            of_it = Missing(batch.producer_epoch, missing, error, IN_FLIGHT_MAX, missing)
            self._wait_for(batch.producer_id, of_it, known)

    def was_behind(self, batch: BatchHeader) -> ErrorCode | None:
        """What a batch that is out of order is told instead, if it may have been on its way behind the one sent back."""
        known = self._first.of(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            return None
        if not is_after(batch.base_sequence, known.sequence) or not known.more:
            return None
        fewer = known._replace(more=known.more - 1)
        self._keep(batch.producer_id, _with(fewer, batch.base_sequence))
        return known.error

    def written(self, batch: BatchHeader) -> None:
        """Now, or before: then what was sent back came again, and is known."""
        producer_id = batch.producer_id
        begun = self.beginnings.written(batch)
        if begun is not None and self._first.of(producer_id) is None:
            first, epoch = batch.base_sequence, batch.producer_epoch
            error = ErrorCode.not_leader_or_follower
            self._keep(producer_id, Missing(epoch, first, error, IN_FLIGHT_MAX, begun.last))
        self._came(producer_id, batch.producer_epoch, batch.last_sequence)

    def _came(self, producer_id: int, epoch: int, last_sequence: int) -> None:
        """All of a producer's up to this one: the next that was sent back is the one to wait for."""
        known = self._first.of(producer_id)
        if known is None or epoch < known.epoch:
            return
        if epoch == known.epoch and is_after(known.sequence, last_sequence):
            return
        self._first.give_up(producer_id)
        if epoch == known.epoch and is_after(known.last, last_sequence) and known.more:
            following = sequence_plus(last_sequence, 1)
            self._keep(producer_id, known._replace(sequence=following, more=IN_FLIGHT_MAX))

    def renew(self) -> None:
        """This node leads anew: what is missing may be on its way from another one again."""
        self._first.change(lambda known: known._replace(more=IN_FLIGHT_MAX))
        self.beginnings.renew()


def may_be_behind_others(producer: ProducerState, led_from: int) -> bool:
    """Whether batches in front of this producer's next may be on their way from the former leader, to which it may have sent
    so many: fewer than that were written since this node leads."""
    written = sum(batch.last_offset >= led_from for batch in producer.batches)
    return led_from > 0 and written < IN_FLIGHT_MAX


def _with(known: Missing, sequence: int) -> Missing:
    """This one is sent back, too."""
    return known._replace(last=sequence) if is_after(sequence, known.last) else known
