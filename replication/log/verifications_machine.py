"""Producers without state of their own here, and how low their next sequence must be.

INVARIANT  of a producer that the partition does not know, no batch is written before one with a lower sequence
           that was refused, or that waits for the transaction coordinator's word. No guard is given twice.
PREVENTS   the second of two batches in flight overtaking the first, which is then out of order for ever; and a
           write that reaches a partition after its transaction has ended, which nothing would ever end again.
PROVED BY  tests/replication/log/test_producers_machine.py::test_a_refused_first_batch_is_not_overtaken,
           tests/replication/log/test_producers_verification.py::test_what_waits_for_verification_lets_nothing_overtake_it,
           tests/replication/log/test_producers_verification.py::test_a_word_from_before_the_log_was_cut_is_worth_nothing_for_who_asks_behind_it,
           tests/replication/log/test_producers_verification.py::test_a_word_counts_for_nothing_once_a_marker_has_come_for_its_transaction

Verification is KIP-890's (VerificationStateEntry); remembering refusals of any kind is ours, and so is the word that
comes before anybody has asked for it, which must not count once a marker has ended what it is about (`is_over`).
"""

from typing import Final

from .producer_snapshot import is_after

REFUSED_MAX: Final = 1_000  # remembered refusals a partition; the oldest go first
ENDED_MAX: Final = 1_000  # remembered ends a partition; likewise
NO_GUARD: Final = 0  # VerificationGuard.SENTINEL
UNKNOWN_START: Final = -1
_ANY_START: Final = (
    2**63
)  # of an end that does not say which transaction it is of: it may be any of its epoch


class Verification:
    """A transaction whose first write here waits for the coordinator's word, or has it."""

    __slots__ = (
        "asked_ms", "guard", "is_confirmed", "lowest_sequence", "producer_epoch", "started_ms",
        "supports_epoch_bump",
    )  # fmt: skip

    def __init__(
        self, guard: int, sequence: int, producer_epoch: int, now_ms: int, *, epoch_bump: bool
    ) -> None:
        self.guard = guard
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch
        self.asked_ms = now_ms
        self.supports_epoch_bump = epoch_bump
        self.is_confirmed = False
        self.started_ms = UNKNOWN_START  # the transaction, when that is confirmed


class Verifications:
    """Of one partition; made when first needed, so that most partitions have none."""

    __slots__ = ("_ended", "_ended_floor", "_guards_given", "_refused", "_starts", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Verification] = {}
        self._refused: dict[int, tuple[int, int]] = {}  # producer id -> epoch, lowest sequence
        self._starts: dict[
            int, int
        ] = {}  # producer id -> when its transaction that is open here began
        # producer id -> epoch and beginning of the last transaction that a marker came for
        self._ended: dict[int, tuple[int, int]] = {}
        self._ended_floor = (
            UNKNOWN_START  # the latest beginning among those that are not remembered
        )
        self._guards_given = 0

    def start(
        self, producer_id: int, sequence: int, producer_epoch: int, now_ms: int, *, epoch_bump: bool
    ) -> int:
        """The guard for `confirm`; NO_GUARD when the coordinator has confirmed this transaction before."""
        known = self._waiting.get(producer_id)
        if known is None or producer_epoch > known.producer_epoch:
            # Whoever asked for an epoch that has passed gets no word that counts.
            self._guards_given += 1
            known = Verification(
                self._guards_given, sequence, producer_epoch, now_ms, epoch_bump=epoch_bump
            )
            self._waiting[producer_id] = known
        elif producer_epoch == known.producer_epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
            if known.is_confirmed:
                return NO_GUARD
        return known.guard

    def confirm(
        self, producer_id: int, producer_epoch: int, guard: int, started_ms: int = UNKNOWN_START
    ) -> bool:
        """The coordinator's word, and when the transaction began there. False when it comes too late: a marker has ended what it is about.

        1. verification begins   2. the coordinator says yes   3. it aborts, and the marker is written here   4. its
        word arrives. There may be a new verification by then, and the old word must not count for it.
        """
        known = self._waiting.get(producer_id)
        if known is None or known.guard != guard or known.producer_epoch != producer_epoch:
            return False
        known.is_confirmed = True
        known.started_ms = started_ms
        return True

    def forget(self, producer_id: int, producer_epoch: int, guard: int) -> None:
        """The coordinator wants nothing of it: no batch of it will be written, in whatever order.

        Not of a zombie, which has the guard of its successor: that one's batches wait for each other yet.
        """
        known = self._waiting.get(producer_id)
        if known is None or (known.guard, known.producer_epoch) != (guard, producer_epoch):
            return
        if not known.is_confirmed:
            del self._waiting[producer_id]

    def is_confirmed(self, producer_id: int, producer_epoch: int) -> bool:
        known = self._waiting.get(producer_id)
        return known is not None and known.is_confirmed and known.producer_epoch == producer_epoch

    def is_of_another(self, producer_id: int, started_ms: int) -> bool:
        """Whether a marker ends another transaction than the one that is open here, or about to be.

        Old clients have one epoch for all of theirs, which is all that Kafka's markers name. 1. a marker is sent and
        its node pauses   2. it is sent again by another way, written, and the transaction is done   3. the next one
        begins   4. the first marker is read from a socket's buffer.

        Such a one has begun earlier than what is open, as one epoch's transactions begin one after the other. A later
        one's marker means that what is remembered here is stale: what is open is its own, and nobody else would end it.
        """
        known = self._waiting.get(producer_id)
        began_ms = self._starts.get(producer_id, UNKNOWN_START)
        if known is not None and known.is_confirmed:
            began_ms = known.started_ms
        return UNKNOWN_START != started_ms < began_ms

    def note_end(self, producer_id: int, producer_epoch: int, started_ms: int) -> None:
        """A marker has come, whatever becomes of it: no word on that transaction, or an earlier one, counts any more."""
        end = (producer_epoch, _ANY_START if started_ms == UNKNOWN_START else started_ms)
        known = self._ended.pop(producer_id, end)
        self._ended[producer_id] = max(end, known)
        if len(self._ended) > ENDED_MAX:
            _, oldest_ms = self._ended.pop(self._to_forget())
            self._ended_floor = max(self._ended_floor, oldest_ms)

    def _to_forget(self) -> int:
        """Who ended longest ago, of those whose end says of which transaction: without one that does not, no word on any
        transaction counted any more. A person's marker is such a one, and rare."""
        for producer_id, (_, started_ms) in self._ended.items():
            if started_ms != _ANY_START:
                return producer_id
        return next(iter(self._ended))

    def is_over(self, producer_id: int, producer_epoch: int, started_ms: int) -> bool:
        """Whether this transaction may have ended here, for all that is remembered: then a word on it is void.

        1. the coordinator sends word that it has begun   2. that waits in a buffer   3. the transaction is aborted,
        its marker comes by another connection and is written   4. the word is read.
        """
        end = self._ended.get(producer_id)
        is_ended = end is not None and (producer_epoch, started_ms) <= end
        return is_ended or started_ms <= self._ended_floor

    def of(self, producer_id: int) -> Verification | None:
        return self._waiting.get(producer_id)

    def note_refused(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        known = self._refused.pop(producer_id, None)
        if known is None and len(self._refused) >= REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        # The lowest of the newest epoch; whoever was refused just now goes last.
        epoch, lowest = known or (producer_epoch, sequence)
        if producer_epoch > epoch or (producer_epoch == epoch and is_after(lowest, sequence)):
            epoch, lowest = producer_epoch, sequence
        self._refused[producer_id] = epoch, lowest

    def forget_refused(self, producer_id: int) -> None:
        """Its client has given that one up."""
        self._refused.pop(producer_id, None)

    def lowest_refused(self, producer_id: int, producer_epoch: int) -> int | None:
        """The sequence that must come first, of a producer that had this epoch when it was refused."""
        known = self._refused.get(producer_id)
        return known[1] if known and known[0] == producer_epoch else None

    def written(self, producer_id: int, *, is_transactional: bool) -> None:
        """The partition knows the producer now, and its transaction if it has one."""
        self._refused.pop(producer_id, None)
        if is_transactional:
            known = self._waiting.pop(producer_id, None)
            if known is not None and known.started_ms != UNKNOWN_START:
                self._starts[producer_id] = known.started_ms

    def ended(self, producer_id: int) -> None:
        """By a marker; what was asked before it is void."""
        self._refused.pop(producer_id, None)
        self._waiting.pop(producer_id, None)
        self._starts.pop(producer_id, None)

    def begin_anew(self) -> None:
        """The log was cut, or is read again: nothing is known of anybody. Guards go on, and what has ended stays so.

        1. a first write waits for the coordinator's word, with guard 1   2. the lead is lost, and the log is cut   3. the next
        leader writes the marker, and this one copies it   4. it leads again, and somebody asks for that producer's next
        transaction   5. the word comes: were that guard 1, too, it would count.
        A leader, too, takes back batches of which a full disk took only some: in one epoch with the words that are on their way.
        """
        self._waiting.clear()
        self._refused.clear()
        self._starts.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, known in list(self._waiting.items()):
            if now_ms - known.asked_ms >= expiration_ms:
                del self._waiting[producer_id]
