"""What a coordinator's machine answers: data that a shell acts on, nothing that acts by itself.

INVARIANT  `decide` and `tick` change nothing; all that is to change stands in the Decision they return.
PREVENTS   a client seeing an answer that rests on a change whose record was never written.
PROVED BY  tests/txn/test_classic_join.py::test_deciding_twice_gives_the_same_decision_and_changes_nothing

A Decision names seven things, and the shell (`shard.py`) treats each in its own way:

    records   go to the log and to `apply`; another node can be built from them
    steps     go to `apply` only: memory that a coordinator may lose (who waits, who is about to join)
    reply     leaves when every record decided so far is committed, or waits: `Parked(ticket)`
    effects   `Answer` to a parked reply: leaves when every record decided so far is committed
              `Send` to the coordinator's own shell, for other nodes: likewise
              `SetTimer`, `CancelTimer`: at once, they are promises of this process to itself
    producer  whose transaction the records belong to, if any
    notes     lines for the log, said when the decision is taken
    whole     the records make sense in one batch only; if they don't fit in one, nothing of it is done
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Fields = dict[str, Any]  # an answer, in the words of `cluster/wire/render.py`
TimerKey = tuple[
    str | int, ...
]  # unique within one machine, for example ("session", group, member)


class LogRecord(Protocol):
    """A change that is written down. Knows its own bytes; None for a value is a tombstone."""

    def encode(self) -> tuple[bytes, bytes | None]: ...


class Producer(NamedTuple):
    """The transactional producer in whose name records are written."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Parked:
    """The reply comes later, as an `Answer` with the ticket that the command carried."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to a command that was parked. A ticket nobody waits for any more is ignored."""

    ticket: int
    fields: Any  # what the reply to the command would have been


@dataclass(frozen=True, slots=True)
class Send:
    """Something for the shell to do, handed over with the shard that decided it."""

    what: Any


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `tick` with this key after a delay; an earlier timer with the same key is replaced."""

    key: TimerKey
    delay_ms: int
    # Set also where the rest can't be written now: who is waited for was heard, whatever becomes of what he asked for.
    heard: bool = False


@dataclass(frozen=True, slots=True)
class CancelTimer:
    key: TimerKey


class Note(NamedTuple):
    """Something that people should know of. The event and its sentence stand in `cluster/base/log_events_data.py`."""

    event: str
    fields: Mapping[str, object]


Effect = Answer | Send | SetTimer | CancelTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    reply: Any = None
    records: Sequence[LogRecord] = ()
    steps: Sequence[Any] = ()
    effects: Sequence[Effect] = ()
    producer: Producer | None = None
    notes: Sequence[Note] = ()
    whole: bool = False


NOTHING = Decision()
