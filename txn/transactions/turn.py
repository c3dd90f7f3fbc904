"""One decision of the machine while it is being made: steps of transactions, and all that follows from them.

INVARIANT  a turn changes nothing: what it has written it reads from its own notes, and the machine from the records.
PREVENTS   a decision that could not be written and has happened all the same.
PROVED BY  tests/txn/test_transactions_machine.py::test_deciding_twice_gives_the_same_decision_and_changes_nothing

Whoever waits for a transaction's markers is decided in the very turn that completes it: one batch holds the end of the
one transaction and the beginning of the next.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.connections import Connections, heard_over
from ..runtime.decision import (
    Answer,
    CancelTimer,
    Decision,
    Effect,
    LogRecord,
    Note,
    Parked,
    Send,
    SetTimer,
    TimerKey,
)
from .additions import Addition
from .commands import (
    NO_CONNECTION,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    Opened,
    VerifyPartitions,
    WriteMarkers,
)
from .policy import (
    WAITS,
    Outcome,
    add_partitions,
    end_transaction,
    init_producer_id,
    verify_partitions,
)
from .records import TransactionRecord, fits_a_record, value_version
from .transaction import (
    COMPLETE,
    DECIDED,
    EPOCH_BUMP_VERSION,
    IDLE,
    Phase,
    Transaction,
    check,
)

E = ErrorCode
Command = InitProducerId | AddPartitions | VerifyPartitions | EndTransaction
TIMEOUT: Final = "timeout"
TAKEN_OVER: Final = "another instance of its producer asked for its producer id (InitProducerId)"
WAIT: Final = "wait"
# For one transaction's markers: a producer's own, and the questions of all nodes that it writes to. A stranger's request may
# name it 45,000 times.
WAITING_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class WaitingChanged:
    """A step: who waits for this transaction's markers now. Memory only: a new coordinator's clients ask again."""

    transactional_id: str
    waiting: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class HeardOver:
    """A step: over which connection a producer was last heard of."""

    transactional_id: str
    connection: int


class State(Protocol):
    """What a turn reads of the machine."""

    transactions: dict[str, Transaction]
    waiting: dict[str, tuple[Command, ...]]
    connections: dict[str, Connections]
    additions: list[Addition]
    wait_ms_max: int
    transaction_version: Callable[[], int]


class Turn:
    def __init__(self, state: State, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[LogRecord] = []
        self.steps: list[Any] = []
        self.effects: list[Effect] = []
        self.notes: list[Note] = []
        self._state = state
        self._transactions: dict[str, Transaction] = {}
        self._waiting: dict[str, tuple[Command, ...]] = {}

    def get(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id) or self._state.transactions.get(
            transactional_id
        )

    # -- one request -----------------------------------------------------------------------------

    def take(self, command: Command) -> Any:
        """The reply, or `Parked` until the transaction's markers are written; where too many are, Kafka's answer."""
        reply = self._decide(command)
        if reply is not WAITS:
            return reply
        assert command.ticket, f"{command} can't wait: nothing would find its answer"
        if len(self._who_waits(command.transactional_id)) >= WAITING_MAX:
            return E.concurrent_transactions
        self._park(command)
        return Parked(command.ticket)

    def _decide(self, command: Command) -> Any:
        outcome = self._outcome(command)
        if outcome.step is not None:
            self.write(outcome.step)
            after = self.get(command.transactional_id)
            if outcome.reply is WAITS and after is not None and after.phase in IDLE:
                return self._decide(command)  # there was nothing to wait for
        return outcome.reply

    def _outcome(self, command: Command) -> Outcome:
        transaction = self.get(command.transactional_id)
        match command:
            case InitProducerId():
                if not command.keep_prepared and self._is_held(command.transactional_id):
                    return Outcome(E.concurrent_transactions)
                version = self._state.transaction_version()
                outcome = init_producer_id(transaction, command, self.now_ms, version)
                if outcome.step is not None:
                    self.steps.append(HeardOver(command.transactional_id, NO_CONNECTION))
                    ongoing = transaction is not None and transaction.phase is Phase.ONGOING
                    if transaction is not None and ongoing and outcome.reply is WAITS:
                        self.note("transaction_fenced", transaction, cause=TAKEN_OVER)
                return outcome
            case VerifyPartitions():
                return verify_partitions(transaction, command)
            case AddPartitions():
                if self._is_late(transaction, command):
                    return Outcome(E.not_coordinator)
                outcome = add_partitions(transaction, command, self.now_ms)
                if outcome.step is not None and not fits_a_record(outcome.step):
                    # Kafka's word for what fits no record. Not left to the shard: others may be decided in this turn.
                    return Outcome(E.unknown_server_error)
                if transaction is not None and outcome.step is not None:
                    self._tell_leaders(transaction, command, outcome.step)
                return outcome
            case EndTransaction():
                if self._is_late(transaction, command):
                    return Outcome(E.not_coordinator)
                outcome = end_transaction(transaction, command, self.now_ms)
                if transaction is not None and outcome.reply is E.invalid_txn_state:
                    wanted = "commit" if command.commit else "abort"
                    named, phase = command.producer_epoch, transaction.phase.word
                    self.note(
                        "transaction_end_refused",
                        transaction,
                        phase=phase,
                        wanted=wanted,
                        named_epoch=named,
                    )
                return outcome

    def _tell_leaders(
        self, before: Transaction, command: AddPartitions, after: Transaction
    ) -> None:
        """Of what the client has added; otherwise it is they who ask."""
        if command.client_transaction_version < EPOCH_BUMP_VERSION:
            self.effects.append(
                Send(
                    Opened(
                        producer_id=after.producer_id,
                        producer_epoch=after.producer_epoch,
                        started_ms=after.start_timestamp,
                        partitions=after.partitions[len(before.partitions) :],
                    )
                )
            )

    def _is_held(self, transactional_id: str) -> bool:
        return any(addition.holds(transactional_id) for addition in self._state.additions)

    def _is_late(
        self, transaction: Transaction | None, command: AddPartitions | EndTransaction
    ) -> bool:
        """It comes over a connection that its producer has given up for a newer one, where it has asked again since.

        Up to EndTxn 4 all transactions of a producer have one epoch, so that this is all that tells a late EndTxn from
        the next transaction's own (KAFKA-17754). Nobody reads the answer, and nothing more comes over that connection.
        Whoever does come again over it is alive, and has two of them: it is heard from then on. Which way
        InitProducerId came says nothing: aiokafka keeps a connection of its own for that.
        A producer of before, which another one has fenced, is told so over any connection.
        """
        if transaction is None or command.connection == NO_CONNECTION:
            return False
        if transaction.identity != (command.producer_id, command.producer_epoch):
            return False
        before = self._state.connections.get(command.transactional_id)
        if heard_over(before, command.connection) != before:
            self.steps.append(HeardOver(command.transactional_id, command.connection))
        return before is not None and before.has_given_up(command.connection)

    # -- a step of a transaction -----------------------------------------------------------------

    def write(self, after: Transaction) -> None:
        """The next state of a transaction, and what follows from it."""
        before = self.get(after.transactional_id)
        check(before, after)
        version = value_version(after, self._state.transaction_version())
        self.records.append(TransactionRecord(after, version))
        self._transactions[after.transactional_id] = after
        self._set_timeout(before, after)
        for addition in self._state.additions:
            self.add(addition.stepped(before, after, self.now_ms))
        if after.phase in DECIDED:
            if after.partitions:
                self.effects.append(Send(markers_of(after)))
            else:
                self.write(after.completed(self.now_ms))
        elif after.phase in COMPLETE:
            self._resume(after.transactional_id)

    def add(self, more: Decision) -> None:
        """All of another decision but its reply."""
        self.records.extend(more.records)
        self.steps.extend(more.steps)
        self.effects.extend(more.effects)
        self.notes.extend(more.notes)

    def note(self, event: str, transaction: Transaction, **fields: object) -> None:
        identity = {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
        }
        self.notes.append(Note(event, {**identity, **fields}))

    def _set_timeout(self, before: Transaction | None, after: Transaction) -> None:
        was_running = before is not None and before.phase is Phase.ONGOING
        runs = after.phase is Phase.ONGOING and after.has_timeout
        if runs and not was_running:
            self.effects.append(SetTimer(timeout_key(after), after.timeout_ms))
        elif was_running and not runs:
            self.effects.append(CancelTimer(timeout_key(after)))

    # -- those who wait --------------------------------------------------------------------------

    def _who_waits(self, transactional_id: str) -> tuple[Command, ...]:
        if transactional_id in self._waiting:
            return self._waiting[transactional_id]
        return self._state.waiting.get(transactional_id, ())

    def _park(self, command: Command) -> None:
        transactional_id = command.transactional_id
        waiting = self._who_waits(transactional_id)
        self._waiting[transactional_id] = (*waiting, command)
        if not waiting:
            self.effects.append(SetTimer((WAIT, transactional_id), self._state.wait_ms_max))

    def _resume(self, transactional_id: str) -> None:
        waiting = self._who_waits(transactional_id)
        if not waiting:
            return
        self._waiting[transactional_id] = ()
        self.effects.append(CancelTimer((WAIT, transactional_id)))
        for command in waiting:
            reply = self._decide(command)
            if reply is WAITS:
                self._park(command)
            else:
                self.effects.append(Answer(command.ticket, reply))

    def give_up(self, transactional_id: str) -> None:
        """The markers take too long: everybody who waits for them asks again, as with Kafka."""
        for command in self._who_waits(transactional_id):
            self.effects.append(Answer(command.ticket, E.concurrent_transactions))
        self._waiting[transactional_id] = ()

    # -- the result ------------------------------------------------------------------------------

    def decision(self, reply: Any = None) -> Decision:
        waiting = [WaitingChanged(*changed) for changed in self._waiting.items()]
        return Decision(
            reply=reply,
            records=self.records,
            steps=(*self.steps, *waiting),
            effects=self.effects,
            notes=self.notes,
        )


def timeout_key(transaction: Transaction) -> TimerKey:
    return (TIMEOUT, transaction.transactional_id)


def markers_of(transaction: Transaction) -> WriteMarkers:
    assert transaction.phase in DECIDED, f"{transaction.phase.word} has no markers"
    return WriteMarkers(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        commit=transaction.phase is Phase.PREPARE_COMMIT,
        partitions=transaction.partitions,
        transaction_version=transaction.client_transaction_version,
        started_ms=transaction.start_timestamp,
    )
