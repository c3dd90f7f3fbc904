"""What else lives in the log of transactions, beside Kafka's own: the place where it is joined to the machine.

An addition is a machine of its own (decide, apply, tick) with its own commands, records and timers, and may write
its records in the same batch as a transaction's step.
"""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ..runtime.decision import Decision, LogRecord, TimerKey
from .transaction import Transaction


class Addition(Protocol):
    commands: Collection[type]
    changes: Collection[type]  # records and steps
    timers: Collection[str]  # what its timers' keys begin with

    def decide(self, command: Any, now_ms: int) -> Decision: ...

    def apply(self, change: Any) -> None: ...

    def tick(self, key: TimerKey, now_ms: int) -> Decision: ...

    def owners_of(self, command: Any) -> Sequence[str] | None:
        """As `Machine.owners_of`: whose records, and whose transactions, a command rests on."""

    def loaded(self, now_ms: int) -> Decision: ...

    def woken(self, owner: str, now_ms: int) -> Decision: ...

    def holds(self, transactional_id: str) -> bool:
        """Whether its open transaction is not to be aborted by a new incarnation of its producer, which has to wait."""

    def stepped(self, before: Transaction | None, after: Transaction, now_ms: int) -> Decision:
        """A transaction takes a step: what is to be written with it, and what is to happen."""

    def expired(self, now_ms: int, limit: int) -> Sequence[LogRecord]:
        """Tombstones of what has been kept for long enough; asked now and then."""
