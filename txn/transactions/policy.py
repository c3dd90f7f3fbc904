"""What one request makes of one transaction: pure choices, with nothing around them.

Each function reads a `Transaction` (None: nobody has worked under this id) and a command, and returns the answer and
the next state, if it changes. `WAITS` for an answer: the markers of the transaction before are being written; ask
again when they are. Sources: Kafka 4.3's TransactionCoordinator and TransactionMetadata, KIP-360, 890, 939.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch

from .commands import (
    ADDED_BEFORE,
    NEEDS_PRODUCER_ID,
    AddPartitions,
    Ended,
    EndedBefore,
    EndTransaction,
    Initialised,
    InitProducerId,
    VerifyPartitions,
)
from .transaction import (
    CLIENT_EPOCH_MAX,
    DECIDED,
    EPOCH_BUMP_VERSION,
    IDLE,
    Identity,
    Phase,
    Transaction,
    fresh,
)

E = ErrorCode
P = Phase
WAITS: Final = "waits for markers"
NO_VERSION: Final = 0  # of a client that does not know transaction.version 2
BUMPING: Final = 2


class Outcome(NamedTuple):
    reply: Any
    step: Transaction | None = None


# -- InitProducerId --------------------------------------------------------------------------------


def init_producer_id(
    transaction: Transaction | None, command: InitProducerId, now_ms: int, server_version: int
) -> Outcome:
    if transaction is None:
        if command.fresh_producer_id is None:
            return Outcome(NEEDS_PRODUCER_ID)
        step = fresh(
            command.transactional_id,
            command.fresh_producer_id,
            timeout_ms=command.timeout_ms,
            now_ms=now_ms,
        )
        return Outcome(Initialised(*step.identity), step)
    if transaction.phase in DECIDED:
        return Outcome(WAITS)
    if transaction.phase in IDLE:
        return _begin(transaction, command, now_ms)
    # Kafka looks only at the id here, so that a zombie which names an old epoch aborts its successor's transaction.
    if _names_one(command) and _named(command) != transaction.identity:
        return Outcome(E.producer_fenced)
    if command.keep_prepared:
        return _keep(transaction, command, now_ms)
    # Whoever was before is fenced and its transaction aborted; this producer begins when that is done.
    return Outcome(WAITS, transaction.fenced(now_ms, server_transaction_version=server_version))


def _begin(transaction: Transaction, command: InitProducerId, now_ms: int) -> Outcome:
    """Nothing is open: the next epoch, or the first of a new id."""
    now = Identity(transaction.producer_id, transaction.producer_epoch)
    last_epoch = NO_PRODUCER_EPOCH
    if _names_one(command):
        named = _named(command)
        if named != now:
            return _begin_again(transaction, command, now_ms)
        # KIP-360: if the answer is lost it will name this one again.
        last_epoch = ProducerEpoch(named.producer_epoch)
    following = _next(now, command.fresh_producer_id)
    if following is None:
        return Outcome(NEEDS_PRODUCER_ID)
    step = transaction.initialised(
        following, last_producer_epoch=last_epoch, timeout_ms=command.timeout_ms, now_ms=now_ms
    )
    return Outcome(Initialised(*following), step)


def _begin_again(transaction: Transaction, command: InitProducerId, now_ms: int) -> Outcome:
    """It names what it had before: it never heard the last answer, or it was fenced.

    Nobody else has been given the present epoch, or `last_producer_epoch` would not be there any more.
    """
    named, last_epoch = _named(command), transaction.last_producer_epoch
    is_same_id = named.producer_id == transaction.producer_id
    has_new_id = (
        named.producer_id == transaction.previous_producer_id and transaction.producer_epoch == 0
    )
    if last_epoch != named.producer_epoch or not (is_same_id or has_new_id):
        return Outcome(E.producer_fenced)
    now = Identity(transaction.producer_id, transaction.producer_epoch)
    if now.producer_epoch > CLIENT_EPOCH_MAX:
        # The epoch that is kept for fencing: it was fenced by a timeout, and its id is used up.
        following = _next(now, command.fresh_producer_id)
        if following is None:
            return Outcome(NEEDS_PRODUCER_ID)
        step = transaction.initialised(
            following, last_producer_epoch=last_epoch, timeout_ms=command.timeout_ms, now_ms=now_ms
        )
        return Outcome(Initialised(*following), step)
    if transaction.phase is P.EMPTY and transaction.timeout_ms == command.timeout_ms:
        return Outcome(Initialised(*now))
    step = transaction.initialised(
        now, last_producer_epoch=last_epoch, timeout_ms=command.timeout_ms, now_ms=now_ms
    )
    # What it had stays known, for one more retry.
    kept = transaction.previous_producer_id
    # So does when the last one began: the next has the same epoch as its markers.
    began_ms = transaction.start_timestamp
    return Outcome(
        Initialised(*now), replace(step, previous_producer_id=kept, start_timestamp=began_ms)
    )


def _keep(transaction: Transaction, command: InitProducerId, now_ms: int) -> Outcome:
    """KIP-939: the transaction stays as it is, and belongs to the new incarnation from now on."""
    following = _next(transaction.identity, command.fresh_producer_id)
    if following is None:
        return Outcome(NEEDS_PRODUCER_ID)
    reply = Initialised(*following, transaction.producer_id, transaction.producer_epoch)
    step = transaction.prepared(now_ms, following)
    return Outcome(reply, replace(step, timeout_ms=command.timeout_ms))


def _next(had: Identity, fresh_producer_id: int | None) -> Identity | None:
    """None when the epochs are used up and no new id is at hand."""
    if not had.is_exhausted:
        return Identity(had.producer_id, had.producer_epoch + 1)
    return None if fresh_producer_id is None else Identity(fresh_producer_id, 0)


def _names_one(command: InitProducerId) -> bool:
    return command.producer_id != NO_PRODUCER_ID


def _named(command: InitProducerId | EndTransaction) -> Identity:
    return Identity(command.producer_id, command.producer_epoch)


# -- AddPartitionsToTxn ----------------------------------------------------------------------------


def add_partitions(transaction: Transaction | None, command: AddPartitions, now_ms: int) -> Outcome:
    refusal = _refuse(transaction, command.producer_id, command.producer_epoch)
    if transaction is None or refusal is not E.none:
        return Outcome(refusal)
    if transaction.phase in DECIDED or transaction.phase is P.PREPARE_EPOCH_FENCE:
        return Outcome(WAITS)
    if transaction.phase is P.PREPARED:
        return Outcome(E.invalid_txn_state)  # it is to be ended as it stands
    version = command.client_transaction_version
    if transaction.phase is P.ONGOING and set(command.partitions) <= set(transaction.partitions):
        return Outcome(E.none if version >= EPOCH_BUMP_VERSION else ADDED_BEFORE)
    step = transaction.opened(command.partitions, client_transaction_version=version, now_ms=now_ms)
    return Outcome(E.none, step)


def verify_partitions(transaction: Transaction | None, command: VerifyPartitions) -> Outcome:
    refusal = _refuse(transaction, command.producer_id, command.producer_epoch)
    if transaction is None or refusal is not E.none:
        return Outcome(dict.fromkeys(command.partitions, refusal))
    if transaction.phase in DECIDED:
        return Outcome(WAITS)
    if transaction.phase is P.PREPARED:
        # Perhaps under an identity that has written nothing of it, and whose id its markers do not name.
        return Outcome(dict.fromkeys(command.partitions, E.invalid_txn_state))
    open_ones = set(transaction.partitions)
    return Outcome(
        {
            each: E.none if each in open_ones else E.transaction_abortable
            for each in command.partitions
        }
    )


def _refuse(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    if transaction is None or transaction.identity.producer_id != producer_id:
        return E.invalid_producer_id_mapping
    if transaction.identity.producer_epoch != producer_epoch:
        return E.producer_fenced
    return E.none


# -- EndTxn ----------------------------------------------------------------------------------------

# What an EndTxn leads to, for an abort and for a commit: the phase to log, or the answer.
Verdicts = tuple[Phase | ErrorCode | str, Phase | ErrorCode | str]
_ENDS: Final[Verdicts] = (P.PREPARE_ABORT, P.PREPARE_COMMIT)
_WAITS: Final[Verdicts] = (WAITS, WAITS)
_SENT_BACK: Final[Verdicts] = (E.concurrent_transactions, E.concurrent_transactions)
_ITS: Final = E.invalid_txn_state

# Of clients up to EndTxn 4, for whom the epoch stays. One that is sent again can't be told from the next transaction's.
ON_END_TXN: Final[Mapping[Phase, Verdicts]] = {
    P.EMPTY: (_ITS, _ITS),
    P.ONGOING: _ENDS,
    P.PREPARED: _ENDS,
    # Kafka answers CONCURRENT_TRANSACTIONS until the markers are written; but it is decided, which is all that was asked.
    P.PREPARE_COMMIT: (_ITS, E.none),
    P.PREPARE_ABORT: (E.none, _ITS),
    P.COMPLETE_COMMIT: (_ITS, E.none),
    P.COMPLETE_ABORT: (E.none, _ITS),
    P.PREPARE_EPOCH_FENCE: _WAITS,
}
# From EndTxn 5 on (KIP-890), from the present epoch. Aborting what was never begun is fine: the client can't know.
# While the markers of the transaction before are written nothing is decided, nor does anybody wait: Java's producer looks
# whether it has batches to send and then, not in one step, for its EndTxn. That may overtake the batches, and only an answer
# that sends it back lets them come first; one that waited would be refused, or abort what then goes into the next transaction.
ON_END_TXN_5: Final[Mapping[Phase, Verdicts]] = {
    P.EMPTY: (P.PREPARE_ABORT, _ITS),
    P.ONGOING: _ENDS,
    P.PREPARED: _ENDS,
    P.PREPARE_COMMIT: _SENT_BACK,
    P.PREPARE_ABORT: _SENT_BACK,
    P.COMPLETE_COMMIT: (P.PREPARE_ABORT, _ITS),
    P.COMPLETE_ABORT: (P.PREPARE_ABORT, _ITS),
    P.PREPARE_EPOCH_FENCE: _WAITS,
}
# The same request once more: its epoch is the one before. Or the coordinator has aborted what a client wants to commit:
# if that was for the next instance of its producer, it hears PRODUCER_FENCED when that one has its epoch.
ON_END_TXN_5_AGAIN: Final[Mapping[Phase, Verdicts]] = {
    P.PREPARE_COMMIT: (E.concurrent_transactions, E.none),
    P.PREPARE_ABORT: (E.none, E.concurrent_transactions),
    P.COMPLETE_COMMIT: (_ITS, E.none),
    P.COMPLETE_ABORT: (E.none, _ITS),
}


def end_transaction(
    transaction: Transaction | None, command: EndTransaction, now_ms: int
) -> Outcome:
    """A late EndTxn of one transaction must not end the next one (KAFKA-17754): that one has another epoch."""
    if transaction is None:
        return Outcome(E.invalid_producer_id_mapping)
    table = ON_END_TXN_5 if command.bumps_epoch else ON_END_TXN
    if command.bumps_epoch and _is_again(transaction, command):
        table = ON_END_TXN_5_AGAIN
    else:
        refusal = _refuse(transaction, command.producer_id, command.producer_epoch)
        if refusal is not E.none:
            return Outcome(refusal)
    verdict = table[transaction.phase][command.commit]
    if verdict is E.none:
        if command.bumps_epoch and transaction.identity.producer_epoch > CLIENT_EPOCH_MAX:
            return _end_with_new_id(transaction, command, now_ms)
        # Of an epoch that ends with its transaction this is so for ever, whoever coordinates it by now.
        kind = Ended if command.bumps_epoch else EndedBefore
        return Outcome(kind(*transaction.identity))
    if not isinstance(verdict, Phase):
        return Outcome(verdict)
    fresh_id = command.fresh_producer_id
    if command.bumps_epoch and transaction.identity.is_exhausted and fresh_id is None:
        return Outcome(NEEDS_PRODUCER_ID)
    step = transaction.ended(
        now_ms,
        commit=command.commit,
        client_transaction_version=BUMPING if command.bumps_epoch else NO_VERSION,
        fresh_producer_id=NO_PRODUCER_ID if fresh_id is None else fresh_id,
    )
    assert step.phase is verdict, f"{transaction.phase.word}: {step.phase.word}"
    return Outcome(Ended(*step.identity), step)


def _end_with_new_id(transaction: Transaction, command: EndTransaction, now_ms: int) -> Outcome:
    """It was ended for its producer with the epoch that is kept for fencing: no marker could end another one of it."""
    if transaction.phase not in IDLE:
        return Outcome(WAITS)
    if command.fresh_producer_id is None:
        return Outcome(NEEDS_PRODUCER_ID)
    following = Identity(command.fresh_producer_id, 0)
    # As if its epochs had run over when it was ended: an answer that is lost is given again.
    step = transaction.renewed(following, now_ms)
    return Outcome(Ended(*following), step)


def _is_again(transaction: Transaction, command: EndTransaction) -> bool:
    """It ended the transaction already, and has not heard so.

    The epoch before may be one that another producer was taken over with, if the one of now ends its transactions as up to
    EndTxn 4: that keeps its epoch. Who is still the same producer is known by `last_producer_epoch`.
    """
    if transaction.phase not in ON_END_TXN_5_AGAIN:
        return False
    now = transaction.identity
    if command.producer_id == now.producer_id:
        is_next = command.producer_epoch + 1 == now.producer_epoch
        return is_next and command.producer_epoch == transaction.last_producer_epoch
    had = (
        transaction.producer_id
        if transaction.phase in DECIDED
        else transaction.previous_producer_id
    )
    ran_over = now.producer_epoch == 0 and command.producer_epoch == CLIENT_EPOCH_MAX
    return ran_over and command.producer_id == had
