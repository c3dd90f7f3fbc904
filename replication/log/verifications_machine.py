"""Producers without state of their own here, and how low their next sequence must be.

INVARIANT  of a producer that the partition does not know, no batch is written before one with a lower sequence
           that was refused, or that waits for the transaction coordinator's word.
PREVENTS   the second of two batches in flight overtaking the first, which is then out of order for ever; and a
           write that reaches a partition after its transaction has ended, which nothing would ever end again.
PROVED BY  tests/replication/log/test_producers_machine.py::test_a_refused_first_batch_is_not_overtaken

Verification is KIP-890's (VerificationStateEntry); remembering refusals of any kind is ours.
"""

from typing import Final

REFUSED_MAX: Final = 1_000  # remembered refusals a partition; the oldest go first
NO_GUARD: Final = 0  # VerificationGuard.SENTINEL


class Verification:
    """A transaction whose first write here waits for the coordinator's word, or has it."""

    __slots__ = (
        "guard", "is_confirmed", "lowest_sequence", "producer_epoch", "started_ms", "supports_epoch_bump",
    )  # fmt: skip

    def __init__(
        self, guard: int, sequence: int, producer_epoch: int, now_ms: int, *, epoch_bump: bool
    ) -> None:
        self.guard = guard
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch
        self.started_ms = now_ms
        self.supports_epoch_bump = epoch_bump
        self.is_confirmed = False


class Verifications:
    """Of one partition; made when first needed, so that most partitions have none."""

    __slots__ = ("_guards_given", "_refused", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Verification] = {}
        self._refused: dict[int, tuple[int, int]] = {}  # producer id -> epoch, lowest sequence
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

    def confirm(self, producer_id: int, producer_epoch: int, guard: int) -> bool:
        """The coordinator's word. False when it comes too late: a marker has ended what it is about.

        1. verification begins   2. the coordinator says yes   3. it aborts, and the marker is written here   4. its
        word arrives. There may be a new verification by then, and the old word must not count for it.
        """
        known = self._waiting.get(producer_id)
        if known is None or known.guard != guard or known.producer_epoch != producer_epoch:
            return False
        known.is_confirmed = True
        return True

    def is_confirmed(self, producer_id: int, producer_epoch: int) -> bool:
        known = self._waiting.get(producer_id)
        return known is not None and known.is_confirmed and known.producer_epoch == producer_epoch

    def of(self, producer_id: int) -> Verification | None:
        return self._waiting.get(producer_id)

    def note_refused(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        known = self._refused.get(producer_id)
        if known is None and len(self._refused) >= REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        if (
            known is None
            or producer_epoch > known[0]
            or (producer_epoch == known[0] and sequence < known[1])
        ):
            self._refused[producer_id] = (producer_epoch, sequence)

    def lowest_refused(self, producer_id: int, producer_epoch: int) -> int | None:
        """The sequence that must come first, of a producer that had this epoch when it was refused."""
        known = self._refused.get(producer_id)
        return known[1] if known and known[0] == producer_epoch else None

    def written(self, producer_id: int, *, is_transactional: bool) -> None:
        """The partition knows the producer now, and its transaction if it has one."""
        self._refused.pop(producer_id, None)
        if is_transactional:
            self._waiting.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, known in list(self._waiting.items()):
            if now_ms - known.started_ms >= expiration_ms:
                del self._waiting[producer_id]
