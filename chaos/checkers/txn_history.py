"""What transactional clients did and saw, as plain data: one operation a line, in the order in which they ended.

An operation is a transaction (`txn`: sends, polls and group offsets that stand or fall together), a `send` or a `read` without
one, an `assign` (from now on the process polls these partitions), a `subscribe` (from now on its group says which), a `crash`,
a `position` (what a group has committed), a `join` (a group has given the process these partitions, `rebalanced`, in a
generation, `positions`; or they are its id's own, in none), a `told` (what somebody heard of decisions that others wait for), a `die` (a client was told what it
must never be told), an `ends` (where partitions end, as a broker said), a `snapshot` (what a reader
has seen of the bank so far), `damaged` (a broker served what is no record of anybody's, there), what an administrator asked for
(`create`, `delete`: of topics, by their ids; `alter`: of settings) or `shows` (what there was of it in the end, by the word of
`process`). One that begins with `open` has not come to its end (`history.py`). The three words are Jepsen's: `ok` it is committed, `fail` it is not and never will be, `info` nobody knows.

    {"f": "txn", "type": "ok", "process": "a", "number": 7, "sends": [["t-0", 70, 12, 0]], "offsets": {"g|t-1": 3}}
    {"f": "read", "type": "ok", "process": "final", "polls": [["t-0", 12, 70, 7, 0]], "positions": {"t-0": 13}}
    {"f": "position", "type": "ok", "process": "a", "offsets": {"g|t-1": 3}, "writers": {"g|t-1": 7}}

`number` is unique and rises with the time at which a transaction began, `value` is unique and rises. A record holds
the number of its transaction, so that a reader knows its writer, and a position holds it as its metadata.

`begins` of an `assign` says where each partition is begun that was not read before; else a `position` behind it does, since who asks
where its group is begins there, and at the beginning where nothing is committed. Of others nobody knows.

`shown` is what was polled, and then was another's to work on, since a rebalance took its partition away: it says nothing of what
the operation consumed or where it is, and all of what a reader at read_committed may be shown.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import BinaryIO, Final, Literal, NamedTuple, get_args

from .history import FINAL, Kind

NO_NUMBER: Final = -1
LINES_MAX: Final = 20  # that an anomaly names
LIFE: Final = "@"  # before a topic's id, in the key of a partition of a topic that comes and goes

Form = Literal[
    "txn",
    "send",
    "read",
    "assign",
    "subscribe",
    "crash",
    "position",
    "ends",
    "snapshot",
    "damaged",
    "join",
    "told",
    "die",
    "create",
    "delete",
    "alter",
    "shows",
    "open",
]
FORMS: Final = frozenset(get_args(Form))
KINDS: Final = frozenset(get_args(Kind))


class Sent(NamedTuple):
    """`extra` is the workload's: an amount of money, or the input that this output was made of."""

    key: str
    value: int
    offset: int | None = None
    extra: int = 0


class Polled(NamedTuple):
    key: str
    offset: int
    value: int
    writer: int = NO_NUMBER
    extra: int = 0


@dataclass(slots=True)
class Txn:
    f: Form
    type: Kind
    process: str
    number: int = NO_NUMBER
    sends: list[Sent] = field(default_factory=list)
    polls: list[Polled] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)  # group|partition -> position
    writers: dict[str, int] = field(default_factory=dict)  # of positions: whose they are
    positions: dict[str, int] = field(default_factory=dict)  # how far a reader has read; ends
    begins: dict[str, int] = field(default_factory=dict)  # of what is assigned: where, if known
    rebalanced: list[str] = field(default_factory=list)  # keys that came or went in the middle
    shown: list[Polled] = field(default_factory=list)  # and what had been polled by then
    told: dict[str, str] = field(default_factory=dict)  # name -> what was decided; "": not yet
    named: dict[str, str | None] = field(default_factory=dict)  # topic -> id, setting -> value
    untold: list[int] = field(default_factory=list)  # sent values that are there, nobody said where
    began_s: float = 0.0
    ended_s: float = 0.0
    slept_s: float = 0.0  # of its client's own accord, in the middle of it
    sent_s: dict[str, float] = field(default_factory=dict)  # key -> when first sent to, if known
    why: str = ""
    line: int = field(default=0, compare=False)  # of its file, from 1

    @property
    def saw(self) -> list[Polled]:
        """All that it was shown, whosever it was to work on."""
        return self.polls + self.shown if self.shown else self.polls


Txns = list[Txn]


def begins_of(op: Txn) -> dict[str, int]:
    """Where its process begins from now on what it has not read yet."""
    if op.f == "position" and op.process != FINAL:
        return {place.partition("|")[2]: max(0, at) for place, at in op.offsets.items()}
    return op.begins


class Log:
    """The version order: what is known of each partition's values, from all that was ever polled and all acknowledged sends.

    Transaction markers and aborted records leave holes; so places are ranks, not offsets.
    """

    def __init__(self, history: Txns) -> None:
        self._history = history
        self._in_order: dict[str, list[int]] = {}  # offsets at which something is
        self.at: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.writer: dict[int, Txn] = {sent.value: op for op in history for sent in op.sends}
        self.seen = seen_values(history)
        for op in history:
            for polled in op.saw:
                self.at[polled.key][polled.offset].add(polled.value)
            if self.is_committed(op):
                for sent in op.sends:
                    if sent.offset is not None:
                        self.at[sent.key][sent.offset].add(sent.value)
        self.order = {
            key: [min(values) for _, values in sorted(self.at[key].items())] for key in self.at
        }
        self._rank = {
            key: {value: place for place, value in reversed(list(enumerate(order)))}
            for key, order in self.order.items()
        }

    def is_committed(self, op: Txn) -> bool:
        """Acknowledged, or of unknown outcome and seen."""
        if op.type == "info":
            return any(sent.value in self.seen for sent in op.sends)
        return op.type == "ok"

    def rank(self, key: str, value: int) -> int | None:
        return self._rank.get(key, {}).get(value)

    def place(self, key: str, offset: int) -> int:
        """The rank of what was polled there."""
        return bisect_left(self._offsets(key), offset)

    def rank_below(self, key: str, offset: int) -> int:
        """Of the last that is there before this offset; -1 when nothing is."""
        return bisect_left(self._offsets(key), offset) - 1

    def _offsets(self, key: str) -> list[int]:
        if key not in self._in_order:
            self._in_order[key] = sorted(self.at[key])
        return self._in_order[key]

    def lines(self, values: Iterable[int]) -> tuple[int, ...]:
        """Where the senders of these values are, and who first polled them; lines are looked for only when asked."""
        wanted = set(values)
        found = {self.writer[value].line for value in wanted if value in self.writer}
        for op in self._history:
            if not wanted.isdisjoint(polled.value for polled in op.saw):
                found.add(op.line)
        return tuple(sorted(found)[:LINES_MAX])


def seen_values(history: Txns) -> set[int]:
    """What somebody was shown, whatever became of his own transaction: all read at read_committed, so it was committed."""
    return {polled.value for op in history for polled in op.saw}


def final_values(history: Txns) -> dict[int, Polled]:
    """What the pass after all faults has found, by value."""
    return {polled.value: polled for op in history if op.process == FINAL for polled in op.polls}


def transactions(history: Txns) -> Iterator[Txn]:
    return (op for op in history if op.f == "txn")


def to_line(op: Txn) -> str:
    fields = asdict(op)
    del fields["line"]
    if not op.slept_s:
        del fields["slept_s"]
    return json.dumps({name: value for name, value in fields.items() if value not in ([], {})})


def from_line(line: str | bytes, number: int = 0) -> Txn:
    """ValueError for one of which no rule would know what it is."""
    op = Txn(**json.loads(line))
    if op.f not in FORMS or op.type not in KINDS:
        raise ValueError(f"there is no {op.f!r} that is {op.type!r}")
    op.sends = [Sent(*each) for each in op.sends]
    op.polls = [Polled(*each) for each in op.polls]
    op.shown = [Polled(*each) for each in op.shown]
    op.line = number
    return op


def from_lines(lines: Iterable[str]) -> Txns:
    return [from_line(line, number) for number, line in enumerate(lines, 1) if line.strip()]


@dataclass(slots=True)
class WholeLines:
    """The operations of a file, up to the first line that is none; `cut` then says which, else it is empty.

    INVARIANT  a line without its end is never read, however sound it looks.
    PREVENTS   a harness that was killed leaving a history that nobody can judge, or that is judged as if it were whole.
    PROVED BY  tests/chaos/test_queue_history.py::test_a_history_whose_last_line_is_torn_is_read_up_to_there_and_called_cut
    """

    file: BinaryIO
    cut: str = ""

    def __iter__(self) -> Iterator[Txn]:
        for number, line in enumerate(self.file, 1):
            if not line.endswith(b"\n"):
                self.cut = f"line {number} has no end: what came behind was never written"
                return
            try:
                op = from_line(line.decode(errors="surrogatepass"), number)
            except (ValueError, TypeError) as error:  # no JSON; not the fields of an operation
                self.cut = f"line {number} is no operation ({error}): what is behind is not read"
                return
            yield op
