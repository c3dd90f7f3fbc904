"""What a partition tells a client whose batch it does not write, and what it remembers of that.

INVARIANT  a batch that its client will send again as it is, is remembered until it comes (`sent_back.py`): what comes in front of its
           turn is neither written nor called out of order.
PREVENTS   a batch overtaking one that was refused.
PROVED BY  tests/replication/test_sent_back.py::test_what_follows_a_batch_that_was_sent_back_is_not_out_of_order
"""

import contextlib
from collections.abc import Sequence
from typing import Final

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ports import Buffer
from fencepost.cluster.wire.batch import BatchHeader, BatchRefused, parse_header

from .appends import Appended, Refusal
from .log.producer_verdicts import Duplicate
from .log.producers_machine import ProducersMachine
from .partition_copies import CopiedPartition
from .places import ON_THEIR_WAY_MS
from .sent_back import TRIED_AGAIN, SentBack, may_be_behind_others

FIRST_EPOCH: Final = 0  # nobody has led before


class RefusingPartition(CopiedPartition):
    __slots__ = ("_led_from_ms", "_sent_back")

    _led_from_ms: int  # by the steady clock
    _sent_back: SentBack | None

    def _remember_sent_back(self, batch: BatchHeader) -> SentBack:
        if self._sent_back is None:
            self._sent_back = SentBack()
        self._sent_back.now_ms = self._steady_ms()
        if self._sent_back and self.log.producers_loaded:
            self._sent_back.known(self.log.producers.state_of(batch.producer_id))
        return self._sent_back

    @property
    def remembers(self) -> bool:
        """Whether a batch that is sent back here is remembered here, so that its connection need not."""
        return self.closed is None and self.is_leader and self.log.producers_loaded

    def _note_sent_back(self, batch: BatchHeader, error: ErrorCode) -> None:
        self._remember_sent_back(batch).note(batch, error)

    def _note_refused(self, batch: BatchHeader, error: ErrorCode) -> None:
        """Whether or not its producer is known here: nothing is to overtake it."""
        self.log.producers.note_refused(batch)
        self._note_sent_back(batch, error)

    def _not_taken(self, refused: BatchRefused, records: Buffer, *, origin_client: bool) -> Refusal:
        """One that was damaged on its way comes again, and nothing is to overtake it. If even its head is wrong another is asked
        to come again."""
        if refused.code is ErrorCode.corrupt_message and origin_client:
            # What is suppressed here the next batch meets itself.
            with contextlib.suppress(BatchRefused, OSError, LogDamaged):
                self._note_refused(parse_header(records), ErrorCode.not_leader_or_follower)
        return self._refused(refused.code, refused.message, refused.record_errors)

    def note_sent_back(self, records: Buffer, error: ErrorCode) -> bool:
        """A batch that was refused before it was asked of this partition: its transaction's coordinator said so, or nothing. False:
        this node does not lead it, and remembers nothing."""
        if not self.is_leader:
            return False
        if error in TRIED_AGAIN:
            # What is no batch at all is nothing to remember.
            with contextlib.suppress(BatchRefused):
                self._note_sent_back(parse_header(records), error)
        return True

    def _told(self, error: ErrorCode, batch: BatchHeader) -> ErrorCode:
        if error is not ErrorCode.out_of_order_sequence_number:
            return error
        producer = self.log.producers.state_of(batch.producer_id)
        led_from = self.machine.epoch_start_offset
        if producer is not None and may_be_behind_others(producer, led_from):
            self._remember_sent_back(batch).note_not_come(producer, batch)
        if self._sent_back and (told := self._sent_back.was_behind(batch)):
            return told
        if producer is None and self._sent_back:
            return self._told_behind_a_beginning(batch, error)
        return error

    def _told_behind_a_beginning(self, batch: BatchHeader, error: ErrorCode) -> ErrorCode:
        beginnings, now_ms = self._remember_sent_back(batch).beginnings, self._steady_ms()
        if beginnings.is_behind(batch, now_ms):
            return ErrorCode.not_leader_or_follower
        if beginnings.is_given_up(batch, now_ms):
            self.log.producers.verifications.forget_refused(batch.producer_id)
            return ErrorCode.not_leader_or_follower
        return error

    def _begins_too_early(self, producers: ProducersMachine, batch: BatchHeader) -> Refusal | None:
        if batch.base_sequence <= 0 or producers.knows(batch.producer_id):
            return None
        if self.machine.leader_epoch == FIRST_EPOCH:
            return None
        if self._steady_ms() - self._led_from_ms > ON_THEIR_WAY_MS:
            return None  # but what is behind one that was asked for before goes on waiting for that
        if self._remember_sent_back(batch).beginnings.may_begin(batch, self._steady_ms()):
            return None
        producers.note_refused(batch)  # nothing behind it begins before it
        why = f"{self.topic_partition}: what this producer sent first may be on its way from the former leader"
        return self._refused(ErrorCode.not_leader_or_follower, why)

    def _written_before(self, retry: Duplicate, batch: BatchHeader) -> Appended:
        self._counters.duplicates += 1
        if self._sent_back:
            self._sent_back.written(batch)
        return Appended(
            retry.first_offset, retry.last_offset, retry.timestamp, self.log.log_start_offset,
            duplicate=True,
        )  # fmt: skip

    def _refused(
        self, error: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()
    ) -> Refusal:
        self._counters.refuse(error)
        if error is ErrorCode.invalid_producer_epoch:
            self._env.log.info(
                "producer_fenced", partition=str(self.topic_partition), cause=message
            )
        return Refusal(error, message, record_errors)
