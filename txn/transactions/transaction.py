"""The life of one transactional id, as its coordinator sees it.

INVARIANT  once PrepareCommit is in the log, nothing but CompleteCommit may follow it; likewise for aborts.
           The epoch of a producer id never goes back, and partitions only leave a transaction that has ended.
PREVENTS   a new coordinator aborting `ledger-2` after `orders-0` already shows the commit; a zombie whose epoch counts
           again; a partition that is never told how its transaction ended.
PROVED BY  tests/txn/test_transaction.py::test_nothing_but_its_completion_follows_a_decision

A `Transaction` is a value: each step makes a new one, and the record in the log is the whole of it
(`records.py`). Who a producer must say that it is stands in `identity`: usually id and epoch, but while a prepared
transaction is kept (KIP-939) or an epoch runs over, the client already has what comes next.
"""

import enum
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fencepost.cluster.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
)

EPOCH_MAX: Final = 32_767
# The last epoch that a client is given: one is kept to fence it with (Kafka's isEpochExhausted).
CLIENT_EPOCH_MAX: Final = EPOCH_MAX - 1
# The timeout of transactions that only their own outside coordinator ends (KIP-939, as in Kafka's log).
NO_TIMEOUT: Final = 2**31 - 1
EPOCH_BUMP_VERSION: Final = (
    2  # transaction.version: every transaction has an epoch of its own (KIP-890)
)


class Phase(enum.IntEnum):
    """With Kafka's numbers (TransactionState). Prepared is ours: Kafka's readers see it as Ongoing."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    PREPARED = 100

    @property
    def word(self) -> str:
        """As Kafka's tools spell it: PrepareCommit."""
        return _WORDS[self]


_WORDS: Final = {phase: phase.name.title().replace("_", "") for phase in Phase}

P = Phase
# What a transactional id may become, by what it is. Every step is checked against it, live and in replay.
MAY_BECOME: Final[dict[Phase, frozenset[Phase]]] = {
    # With transaction.version 2 a client may abort what it has not begun (KIP-890): it can't know.
    P.EMPTY: frozenset({P.EMPTY, P.ONGOING, P.PREPARE_ABORT, P.DEAD}),
    P.ONGOING: frozenset({P.ONGOING, P.PREPARED, P.PREPARE_COMMIT, P.PREPARE_ABORT}),
    P.PREPARED: frozenset({P.PREPARED, P.PREPARE_COMMIT, P.PREPARE_ABORT}),
    P.PREPARE_COMMIT: frozenset({P.COMPLETE_COMMIT}),
    P.PREPARE_ABORT: frozenset({P.COMPLETE_ABORT}),
    # Itself when its producer, which did not end it, asks how it ended and has no epoch left: under a new id (`renewed`).
    P.COMPLETE_COMMIT: frozenset({P.COMPLETE_COMMIT, P.EMPTY, P.ONGOING, P.PREPARE_ABORT, P.DEAD}),
    P.COMPLETE_ABORT: frozenset({P.COMPLETE_ABORT, P.EMPTY, P.ONGOING, P.PREPARE_ABORT, P.DEAD}),
    # Kafka passes through it without writing it: fencing and the abort are one record. Should a log have it, the
    # transaction is aborted.
    P.PREPARE_EPOCH_FENCE: frozenset({P.PREPARE_ABORT}),
    # A tombstone: the id is forgotten.
    P.DEAD: frozenset(),
}
OPEN: Final = frozenset({P.ONGOING, P.PREPARED})
DECIDED: Final = frozenset({P.PREPARE_COMMIT, P.PREPARE_ABORT})
COMPLETE: Final = frozenset({P.COMPLETE_COMMIT, P.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {P.EMPTY}


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= CLIENT_EPOCH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int = NO_PRODUCER_ID  # of the state before this one, as Kafka writes it
    # What a client has been given while the transaction still has what is above.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    # The epoch before, if whoever has it is known to be the same producer: it may have missed an answer.
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    phase: Phase = P.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_timestamp: int = NO_TIMESTAMP
    last_update_timestamp: int
    client_transaction_version: int = 0

    @property
    def identity(self) -> Identity:
        """Who the producer must say that it is."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return Identity(self.producer_id, self.producer_epoch)
        return Identity(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def has_timeout(self) -> bool:
        return self.timeout_ms != NO_TIMEOUT

    @property
    def deadline_ms(self) -> int:
        return self.start_timestamp + self.timeout_ms

    # -- steps -----------------------------------------------------------------------------------

    def initialised(
        self, identity: Identity, *, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        """A producer begins to work: with the next epoch, or with a new id when there is none."""
        return replace(
            self,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            phase=P.EMPTY,
            partitions=(),
            start_timestamp=NO_TIMESTAMP,
            last_update_timestamp=now_ms,
        )

    def opened(
        self,
        partitions: tuple[TopicPartition, ...],
        *,
        client_transaction_version: int,
        now_ms: int,
    ) -> "Transaction":
        """Partitions were added, perhaps the first ones. Whoever writes has had its last answer."""
        known = frozenset(self.partitions)
        added = tuple(each for each in dict.fromkeys(partitions) if each not in known)
        return replace(
            self,
            phase=P.ONGOING,
            previous_producer_id=self.producer_id,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            partitions=self.partitions + added,
            # Never that of the one before: partitions tell the transactions of one epoch apart by it.
            start_timestamp=self.start_timestamp
            if self.phase is P.ONGOING
            else max(now_ms, self.start_timestamp + 1),
            last_update_timestamp=now_ms,
            # Who has added by writing ends it with the next epoch, whatever else it adds by asking.
            client_transaction_version=max(
                client_transaction_version,
                self.client_transaction_version if self.phase is P.ONGOING else 0,
            ),
        )

    def prepared(self, now_ms: int, next_identity: Identity | None = None) -> "Transaction":
        """From now on only its owner ends it, no timeout; perhaps as a later incarnation (KIP-939)."""
        given = next_identity or Identity(self.next_producer_id, self.next_producer_epoch)
        return replace(
            self,
            phase=P.PREPARED,
            previous_producer_id=self.producer_id,
            next_producer_id=given.producer_id,
            next_producer_epoch=given.producer_epoch,
            last_update_timestamp=now_ms,
        )

    def ended(
        self,
        now_ms: int,
        *,
        commit: bool,
        client_transaction_version: int,
        fresh_producer_id: int = NO_PRODUCER_ID,
    ) -> "Transaction":
        """Decided by its producer. `fresh_producer_id` is who it will be when its epochs are used up."""
        had = self.identity
        bumps = client_transaction_version >= EPOCH_BUMP_VERSION
        following = _following(had, fresh_producer_id) if bumps else had
        is_other_id = following.producer_id != self.producer_id
        return replace(
            self,
            phase=P.PREPARE_COMMIT if commit else P.PREPARE_ABORT,
            # What the markers are written with: nobody writes with it, so it fences even a zombie of this epoch.
            producer_epoch=EPOCH_MAX if is_other_id else following.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=following.producer_id if is_other_id else NO_PRODUCER_ID,
            # Kafka does not write the 0 that a new id begins with.
            next_producer_epoch=following.producer_epoch or NO_PRODUCER_EPOCH
            if is_other_id
            else NO_PRODUCER_EPOCH,
            last_producer_epoch=had.producer_epoch if bumps else NO_PRODUCER_EPOCH,
            start_timestamp=max(now_ms, self.start_timestamp + 1)
            if self.phase in IDLE
            else self.start_timestamp,
            last_update_timestamp=now_ms,
            client_transaction_version=client_transaction_version,
        )

    def fenced(self, now_ms: int, *, server_transaction_version: int) -> "Transaction":
        """Aborted by the coordinator: its time is up, or another producer has come. One epoch further, once:
        KAFKA-19367 counted twice, and ran over."""
        had = self.identity
        is_other_id = had.producer_id != self.producer_id
        epoch = min(had.producer_epoch + 1, EPOCH_MAX)
        return replace(
            self,
            phase=P.PREPARE_ABORT,
            producer_epoch=EPOCH_MAX if is_other_id else epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=had.producer_id if is_other_id else NO_PRODUCER_ID,
            next_producer_epoch=epoch if is_other_id else NO_PRODUCER_EPOCH,
            last_producer_epoch=had.producer_epoch,
            last_update_timestamp=now_ms,
            client_transaction_version=server_transaction_version,
        )

    def renewed(self, identity: Identity, now_ms: int) -> "Transaction":
        """Complete, under another producer id: the one that it was completed under is used up."""
        return replace(
            self,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=self.producer_id,
            last_producer_epoch=CLIENT_EPOCH_MAX,
            last_update_timestamp=now_ms,
            client_transaction_version=EPOCH_BUMP_VERSION,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Every partition shows the outcome."""
        identity = self.identity
        return replace(
            self,
            phase=P.COMPLETE_COMMIT if self.phase is P.PREPARE_COMMIT else P.COMPLETE_ABORT,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            partitions=(),
            last_update_timestamp=now_ms,
        )


def _following(had: Identity, fresh_producer_id: int) -> Identity:
    if had.is_exhausted and fresh_producer_id != NO_PRODUCER_ID:
        return Identity(fresh_producer_id, 0)
    return Identity(had.producer_id, min(had.producer_epoch + 1, EPOCH_MAX))


def fresh(transactional_id: str, producer_id: int, *, timeout_ms: int, now_ms: int) -> Transaction:
    """Of an id that nobody has worked under yet."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        previous_producer_id=producer_id,
        timeout_ms=timeout_ms,
        last_update_timestamp=now_ms,
    )


def check(before: Transaction | None, after: Transaction) -> None:
    """What every step keeps, whoever decided it; a record that breaks it dies here, before any disk."""
    who = after.transactional_id
    assert after.producer_id >= 0, f"{who}: producer id {after.producer_id}"
    assert 0 <= after.producer_epoch <= EPOCH_MAX, f"{who}: epoch {after.producer_epoch}"
    if after.phase in IDLE:
        assert not after.partitions, f"{who}: {after.phase.word} with partitions"
    if before is None:
        return  # from a log, which may have been compacted, or the first of its id
    step = f"{who}: {before.phase.word} -> {after.phase.word}"
    assert after.phase in MAY_BECOME[before.phase], step
    if after.producer_id == before.producer_id:
        assert after.producer_epoch >= before.producer_epoch, f"{step}, and an epoch goes back"
    else:
        assert after.phase in IDLE, f"{step}, and another producer id"
        assert after.previous_producer_id == before.producer_id, f"{step} forgets a producer id"
    if before.phase in OPEN:
        assert set(before.partitions) <= set(after.partitions), f"{step} forgets partitions"
