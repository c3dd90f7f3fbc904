"""What clients saw, as plain data: the only thing that a checker may look at.

A history is one JSON object a line, in the order in which a client learned of it. Three words say what is
known of an operation (Jepsen's): `ok` it happened, `fail` it did not and will not, `info` it may have.

    {"f": "send", "type": "ok", "process": 2, "key": "t-0", "value": 17, "offset": 40}
    {"f": "send", "type": "info", "process": 2, "key": "t-0", "value": 18, "error": "timed out"}
    {"f": "read", "type": "ok", "process": "final", "key": "t-0", "offset": 40, "writer": 2, "value": 17}
    {"f": "die", "type": "info", "process": 2, "error": "_FATAL: …"}

`key` names a partition. A value is unique for its process and key, and a process sends ascending values:
so (process, key, value) names a record. `offset` of a send is missing where the answer had none. Reads are
one record each; `process` names one pass over the data, and `final` is the pass after all faults ended. Where records are
deleted on request, a pass is told where the partition begins:

    {"f": "start", "type": "ok", "process": "final", "key": "t-0", "offset": 38}

A history that begins with `open` was written down while its run went on, which has not come to its end: what is not in it may
have happened all the same, and nobody has looked for what was sent.

    {"f": "open", "type": "info", "process": "all"}
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

FINAL: Final = "final"
OPEN: Final = "open"
Kind = Literal["ok", "fail", "info"]
Form = Literal["send", "read", "die", "start", "open"]
KINDS: Final = frozenset(get_args(Kind))
FORMS: Final = frozenset(get_args(Form))


@dataclass(slots=True)
class Operation:
    """One line of a history. `writer` is set on reads: who sent the record, as its content says."""

    f: Form
    type: Kind
    process: int | str
    key: str = ""
    value: int = -1
    offset: int | None = None
    writer: int | str | None = None
    error: str | None = None
    began_s: float | None = None  # on one clock for all; none where nobody looked at it
    ended_s: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class Anomaly:
    """One thing that must not be: which rule, where, a sentence for a person, and the lines of the history that show it."""

    rule: str
    key: str
    what: str
    operations: tuple[int, ...] = field(
        default=(), compare=False
    )  # counted from 1; none where unknown

    def __str__(self) -> str:
        return f"{self.rule}: {self.key}: {self.what}"


History = list[Operation]


def to_line(operation: Operation) -> str:
    fields = {
        name: value
        for name in Operation.__slots__
        if (value := getattr(operation, name)) is not None and not (name == "key" and not value)
    }
    if operation.f in ("die", "start", OPEN):
        del fields["value"]
    return json.dumps(fields)


def from_lines(lines: Iterable[str]) -> History:
    """ValueError where one is of a kind that no rule knows."""
    found = [Operation(**json.loads(line)) for line in lines if line.strip()]
    for op in found:
        if op.f not in FORMS or op.type not in KINDS:
            raise ValueError(f"there is no {op.f!r} that is {op.type!r}")
    return found


def sends(history: History, *kinds: Kind) -> Iterator[Operation]:
    return (op for op in history if op.f == "send" and op.type in kinds)


def reads(history: History, process: int | str | None = None) -> Iterator[Operation]:
    """All reads, or those of one pass."""
    return (op for op in history if op.f == "read" and process in (None, op.process))


def starts(history: History, process: int | str) -> dict[str, int]:
    """Where each partition began for this pass: what lies before was deleted. Partitions that begin at 0 may be left out."""
    found: dict[str, int] = {}
    for op in history:
        if op.f == "start" and op.process == process and op.offset is not None:
            found[op.key] = max(op.offset, found.get(op.key, 0))
    return found
