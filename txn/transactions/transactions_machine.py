"""All transactional ids of one partition of `__transaction_state`.

INVARIANT  an answer follows from what is in the log: a coordinator that is built from any prefix of it goes on as this
           one would have. Who waits, and since when, is memory that can be lost.
PREVENTS   a transaction that one coordinator has promised to commit and the next one aborts.
PROVED BY  tests/txn/test_transactions_replay.py::test_every_prefix_of_the_log_gives_a_coordinator_that_goes_on

What one request makes of one transaction is in `policy.py`, the steps themselves in `transaction.py`, and what
follows from a step in `turn.py`. Transaction groups and checks are joined on as additions (`additions.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.connections import Connections, heard_over
from ..runtime.decision import NOTHING, Decision, Effect, LogRecord, Send, SetTimer, TimerKey
from ..runtime.moments import Began, Moment
from .additions import Addition
from .commands import (
    NO_CONNECTION,
    AddPartitions,
    DescribeTransactions,
    EndTransaction,
    FindOpened,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    VerifyPartitions,
)
from .config import TransactionConfig
from .metrics import TransactionCounters
from .records import TransactionForgotten, TransactionRecord
from .transaction import DECIDED, IDLE, MAY_BECOME, OPEN, Phase, Transaction, check
from .transactions_view import describe_transactions, list_transactions
from .turn import TIMEOUT, WAIT, Command, HeardOver, Turn, WaitingChanged, markers_of, timeout_key

P = Phase
EXPIRE: Final[TimerKey] = ("expire",)
EXPIRE_MAX: Final = 500  # ids looked at in one go: the loop belongs to others too
EXPIRE_PAUSE_MS: Final = 10


class SweepWent(NamedTuple):
    """A step: the ids that this round of expiry has yet to look at."""

    left: tuple[str, ...]


class TimeWasUp(NamedTuple):
    """A step: this id's transaction is aborted because its time was up."""

    transactional_id: str


class Found(NamedTuple):
    """A transactional id as others ask for it; `phase` in Kafka's words."""

    producer_id: int
    producer_epoch: int
    phase: str


class TransactionsMachine:
    def __init__(
        self,
        config: TransactionConfig,
        elapsed: Callable[[], float],
        transaction_version: Callable[[], int] = lambda: 2,
    ) -> None:
        """`elapsed` is looked at when something is applied, to remember when: nothing is decided by it."""
        self.config = config
        self.transaction_version = transaction_version
        self.wait_ms_max = config.wait_ms_max
        self.transactions: dict[str, Transaction] = {}
        self.opened: dict[str, Moment] = {}  # of those that are ongoing, when they began
        self._elapsed = elapsed
        self._begun_s = elapsed()
        self.waiting: dict[str, tuple[Command, ...]] = {}
        self.connections: dict[str, Connections] = {}
        self.additions: list[Addition] = []
        self.counters = TransactionCounters()
        self._sweep: tuple[str, ...] = ()
        self._of_command: dict[type, Addition] = {}
        self._of_change: dict[type, Addition] = {}
        self._of_timer: dict[str, Addition] = {}

    def attach(self, addition: Addition) -> None:
        """Before anything is decided or applied."""
        self.additions.append(addition)
        self._of_command.update(dict.fromkeys(addition.commands, addition))
        self._of_change.update(dict.fromkeys(addition.changes, addition))
        self._of_timer.update(dict.fromkeys(addition.timers, addition))

    # -- decide ----------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Decision:
        addition = self._of_command.get(type(command))
        if addition is not None:
            return addition.decide(command, now_ms)
        return self._ON_COMMAND[type(command)](self, command, now_ms)

    def _take(self, command: Command, now_ms: int) -> Decision:
        turn = Turn(self, now_ms)
        return turn.decision(turn.take(command))

    def _markers_written(self, command: MarkersWritten, now_ms: int) -> Decision:
        turn = Turn(self, now_ms)
        for done in command.done:
            transaction = turn.get(done.transactional_id)
            if transaction is None or transaction.phase not in DECIDED:
                continue  # said twice
            if markers_of(transaction).done == done:
                turn.write(transaction.completed(now_ms))
        return turn.decision()

    def _describe(self, command: DescribeTransactions, now_ms: int) -> Decision:
        return Decision(reply=describe_transactions(self.transactions, command))

    def _opened(self, command: FindOpened, now_ms: int) -> Decision:
        found = self.transactions.get(command.transactional_id)
        who = command.producer_id, command.producer_epoch
        if (
            found is None
            or found.phase not in OPEN
            or who != (found.producer_id, found.producer_epoch)
        ):
            return Decision(reply=ErrorCode.invalid_producer_epoch)
        return Decision(reply=Began(self.opened[found.transactional_id], found.start_timestamp))

    def _list(self, command: ListTransactions, now_ms: int) -> Decision:
        return Decision(reply=list_transactions(self.transactions, command, now_ms))

    # -- what additions ask ----------------------------------------------------------------------

    def find(self, transactional_id: str) -> Found | None:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return None
        return Found(*transaction.identity, transaction.phase.word)

    def end(self, transactional_id: str, *, commit: bool, now_ms: int) -> Decision:
        """End an open transaction in its producer's name; its own EndTxn will be told the same."""
        transaction = self.transactions[transactional_id]
        assert transaction.phase in OPEN, f"{transactional_id} is {transaction.phase.word}"
        turn = Turn(self, now_ms)
        version = transaction.client_transaction_version
        turn.write(transaction.ended(now_ms, commit=commit, client_transaction_version=version))
        return turn.decision()

    def prepare(self, transactional_id: str, now_ms: int) -> Decision:
        """From now on no timeout ends it, and nothing may be added to it."""
        transaction = self.transactions[transactional_id]
        assert transaction.phase in OPEN, f"{transactional_id} is {transaction.phase.word}"
        turn = Turn(self, now_ms)
        turn.write(transaction.prepared(now_ms))
        return turn.decision()

    # -- time ------------------------------------------------------------------------------------

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        if key == EXPIRE:
            return self._expire(now_ms)
        kind, transactional_id = str(key[0]), str(key[-1])
        if kind == TIMEOUT:
            return self._time_is_up(transactional_id, now_ms)
        if kind == WAIT:
            turn = Turn(self, now_ms)
            turn.give_up(transactional_id)
            return turn.decision()
        return self._of_timer[kind].tick(key, now_ms)

    def _time_is_up(self, transactional_id: str, now_ms: int) -> Decision:
        """Abort and fence: the producer may still be at work, and learns of it from its next request."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.phase not in (P.ONGOING, P.PREPARE_EPOCH_FENCE):
            return NOTHING
        if any(addition.holds(transactional_id) for addition in self.additions):
            return NOTHING
        # Not looked at again: whether the wall clock has reached the deadline. Timers go by steady time; a clock that was
        # set back by a day would keep the transaction, and its partitions' stable offsets, for that day.
        turn = Turn(self, now_ms)
        if transaction.phase is P.ONGOING:
            turn.note("transaction_timed_out", transaction, timeout_ms=transaction.timeout_ms)
        turn.write(
            transaction.fenced(now_ms, server_transaction_version=self.transaction_version())
        )
        turn.steps.append(TimeWasUp(transactional_id))
        return turn.decision()

    def loaded(self, now_ms: int) -> Decision:
        effects: list[Effect] = [
            SetTimer(EXPIRE, self.config.transaction_remove_expired_transaction_cleanup_interval_ms)
        ]
        for transaction in self.transactions.values():
            effects.extend(_found(transaction, now_ms))
        turn = Turn(self, now_ms)
        for addition in self.additions:
            turn.add(addition.loaded(now_ms))
        turn.effects.extend(effects)
        return turn.decision()

    def woken(self, owner: str, now_ms: int) -> Decision:
        turn = Turn(self, now_ms)
        transaction = self.transactions.get(owner)
        if transaction is not None:
            turn.effects.extend(_found(transaction, now_ms))
        for addition in self.additions:
            turn.add(addition.woken(owner, now_ms))
        return turn.decision()

    def owners_of(self, command: Any) -> Sequence[str] | None:
        addition = self._of_command.get(type(command))
        if addition is not None:
            return addition.owners_of(command)
        one = getattr(command, "transactional_id", None)
        if one is not None:
            return (one,)
        several: Sequence[str] | None = getattr(command, "transactional_ids", None)
        return several

    def _expire(self, now_ms: int) -> Decision:
        """Forget ids that nobody has worked under for a long time. Who has yet to be read from the log after a move
        has its turn in a later round."""
        ids = self._sweep or tuple(sorted(self.transactions))
        chunk, left = ids[:EXPIRE_MAX], ids[EXPIRE_MAX:]
        oldest_ms = now_ms - self.config.transactional_id_expiration_ms
        records: list[LogRecord] = []
        for transactional_id in chunk:
            transaction = self.transactions.get(transactional_id)
            if transaction is None or transaction.phase not in IDLE:
                continue
            if transaction.last_update_timestamp <= oldest_ms:
                records.append(TransactionForgotten(transactional_id))
        for addition in self.additions:
            records.extend(addition.expired(now_ms, EXPIRE_MAX))
        pause_ms = self.config.transaction_remove_expired_transaction_cleanup_interval_ms
        if left:
            pause_ms = EXPIRE_PAUSE_MS
        return Decision(
            records=records, steps=(SweepWent(left),), effects=(SetTimer(EXPIRE, pause_ms),)
        )

    # -- apply -----------------------------------------------------------------------------------

    def apply(self, change: Any, offset: int = -1, producer_id: int = -1) -> None:
        match change:
            case TransactionRecord():
                self._apply(change.transaction)
            case TransactionForgotten():
                self._forget(change.transactional_id)
            case WaitingChanged(transactional_id, waiting):
                if waiting:
                    self.waiting[transactional_id] = waiting
                else:
                    self.waiting.pop(transactional_id, None)
            case HeardOver(transactional_id, connection):
                if connection == NO_CONNECTION:
                    self.connections.pop(transactional_id, None)
                else:
                    before = self.connections.get(transactional_id)
                    self.connections[transactional_id] = heard_over(before, connection)
            case SweepWent(left):
                self._sweep = left
            case TimeWasUp():
                self.counters.timed_out += 1
            case _:
                self._of_change[type(change)].apply(change)

    def _apply(self, after: Transaction) -> None:
        before = self.transactions.get(after.transactional_id)
        check(before, after)
        if before is not None and before.phase in OPEN and after.phase in DECIDED:
            # In replay nobody was open before: the log's last word on each id is all that is read.
            self.counters.committed += after.phase is P.PREPARE_COMMIT
            self.counters.aborted += after.phase is P.PREPARE_ABORT
        if after.phase not in OPEN:
            self.opened.pop(after.transactional_id, None)
        elif after.transactional_id not in self.opened:
            # A producer is known before it opens anything. Who was not is read from a log, whenever that is.
            is_read = before is None
            opened = Moment.before(self._begun_s) if is_read else Moment.of(self._elapsed())
            self.opened[after.transactional_id] = opened
        if after.phase is P.DEAD:
            self._forget(after.transactional_id)
        else:
            self.transactions[after.transactional_id] = after

    def _forget(self, transactional_id: str) -> None:
        before = self.transactions.pop(transactional_id, None)
        self.connections.pop(transactional_id, None)
        self.opened.pop(transactional_id, None)
        if before is not None:
            assert P.DEAD in MAY_BECOME[before.phase], f"{transactional_id} is {before.phase.word}"

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Records of transactions are never part of one."""

    _ON_COMMAND: ClassVar[Mapping[type, Callable[..., Decision]]] = {
        InitProducerId: _take,
        AddPartitions: _take,
        VerifyPartitions: _take,
        EndTransaction: _take,
        MarkersWritten: _markers_written,
        DescribeTransactions: _describe,
        FindOpened: _opened,
        ListTransactions: _list,
    }


def _found(transaction: Transaction, now_ms: int) -> Sequence[Effect]:
    """What a coordinator owes a transaction that it finds in the log."""
    if transaction.phase in DECIDED:
        return (Send(markers_of(transaction)),)
    if transaction.phase is P.PREPARE_EPOCH_FENCE:
        return (SetTimer(timeout_key(transaction), 0),)
    if transaction.phase is P.ONGOING and transaction.has_timeout:
        left_ms = min(max(transaction.deadline_ms - now_ms, 0), transaction.timeout_ms)
        return (SetTimer(timeout_key(transaction), left_ms),)
    return ()
