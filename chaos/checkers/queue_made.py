"""A long history of the queue workload that nobody lived through, for `queue_measure.py`: sound, but for what is left out on purpose.

Twenty clients, each one process after another: half are members of one group and poll in transactions, the others assign, and
have a group of their own. Most operations are ok, one in twenty fails, and one in twenty ends nobody knows how: that one may be
committed or not, its process ends, another comes, and the group gives its keys anew in the middle of what another member polls.
A key that was written to often enough is left for a new one. Somebody asks for ends, and final polls and the positions of all
groups come on top.
"""

import contextlib
import json
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from .history import FINAL

KEYS: Final = 64  # in use
WRITES_MAX: Final = 1_024  # to a key
CLIENTS: Final = 20
MEMBERS: Final = 10  # of the group, among them
GROUP: Final = "queue"
STEP_S: Final = 0.001
TAKES_S: Final = 0.015  # an operation
POLLS_MAX: Final = 20  # of an operation
FINAL_POLLS: Final = 1_000  # of an operation
FAIL_ODDS: Final = 0.05
INFO_ODDS: Final = 0.05
ENDS_ODDS: Final = 1 / 64
SPOILT: Final = 101  # what is left out is a multiple of it

Record = tuple[int, int, int]  # offset, value, number
Positions = dict[str, tuple[int, int]]  # key -> where, by which number
Operation = dict[str, Any]


@dataclass(slots=True)
class Client:
    """`life` counts its processes; `put` is where transactions have put its own group."""

    slot: int
    life: int = 0
    at: int = 0  # where it polls next, if it assigns
    key: str = ""
    put: Positions = field(default_factory=dict)
    moved: bool = False  # the group has given its keys anew

    @property
    def process(self) -> str:
        return f"p{self.slot}.{self.life}"

    @property
    def subscribes(self) -> bool:
        return self.slot < MEMBERS

    @property
    def group(self) -> str:
        return GROUP if self.subscribes else self.process


class Made:
    def __init__(
        self,
        operations: int,
        keep: Callable[[str, Record, bool], None],
        tell: Callable[[Operation], None],
    ) -> None:
        """`keep` is given what the final polls are to find, `tell` the positions that they are to."""
        self._operations = operations
        self._keep = keep
        self._tell = tell
        self._rng = random.Random(operations)
        self._keys = [f"k-{at}" for at in range(KEYS)]  # in use; what is in their logs:
        self._logs: list[list[Record]] = [[] for _ in range(KEYS)]
        self._ends, self._writes = [0] * KEYS, [0] * KEYS
        self._last_key = KEYS - 1
        self._clients = [Client(slot) for slot in range(CLIENTS)]
        self._group: Positions = {}
        self._value = 0

    def lines(self) -> Iterator[Operation]:
        rng = self._rng
        for number in range(1, self._operations + 1):
            at_s = number * STEP_S
            client = rng.choice(self._clients)
            yield from self._one(number, client, at_s)
            if rng.random() < ENDS_ODDS:
                at = rng.randrange(KEYS)
                yield _op("ends", client, at_s, positions={self._keys[at]: self._ends[at]})
        for client in self._clients:
            self._put_of(client.process, {} if client.subscribes else client.put)
        self._put_of(GROUP, self._group)

    def _put_of(self, group: str, put: Positions) -> None:
        if put:
            op: Operation = {"f": "position", "type": "ok", "process": FINAL}
            op["offsets"] = {f"{group}|{key}": position for key, (position, _) in put.items()}
            op["writers"] = {f"{group}|{key}": number for key, (_, number) in put.items()}
            self._tell(op)

    def _one(self, number: int, client: Client, at_s: float) -> Iterator[Operation]:
        chance = self._rng.random()
        kind = "fail" if chance < FAIL_ODDS else "ok"
        kind = "info" if FAIL_ODDS <= chance < FAIL_ODDS + INFO_ODDS else kind
        is_there = kind == "ok" or (kind == "info" and self._rng.random() < 0.5)
        if not client.subscribes and kind == "ok" and self._rng.random() < 0.5:
            yield _op("read", client, at_s, number=number, polls=self._polls(client)[1])
            return
        key, polls = self._polls(client, moves=is_there)
        op = _op("txn", client, at_s, type=kind, number=number, polls=polls)
        if client.moved and polls:
            op["shown"], op["rebalanced"] = polls[:2], [key]
        client.moved = False
        if polls:
            put = polls[-1][1] + 1, number
            op["offsets"] = {f"{client.group}|{key}": put[0]}
            if is_there:
                (self._group if client.subscribes else client.put)[key] = put
        op["sends"] = self._sends(number, kind, is_there=is_there)
        yield op
        if kind == "info":
            yield from self._another(client, at_s)

    def _another(self, client: Client, at_s: float) -> Iterator[Operation]:
        """Who does not know what became of its transaction ends; its group gives its keys anew."""
        yield _op("crash", client, at_s, type="info")
        if not client.subscribes:
            self._put_of(client.process, client.put)
        client.life += 1
        client.put = {}
        yield _op("assign", client, at_s)
        if client.subscribes:
            other = self._clients[self._rng.randrange(MEMBERS)]
            other.moved = True
            yield _op("assign", other, at_s)

    def _sends(self, number: int, kind: str, *, is_there: bool) -> list[list[int | str | None]]:
        sends: list[list[int | str | None]] = []
        for _ in range(self._rng.choice((0, 1, 2, 3))):
            self._value += 1
            at = self._written()
            key, offset = self._keys[at], self._ends[at]
            self._ends[at] += 2  # a marker follows
            is_told = kind == "ok" or self._rng.random() < 0.5
            sends.append([key, self._value, offset if is_told else None, 0])
            if is_there:
                record = offset, self._value, number
                self._logs[at].append(record)
                self._keep(key, record, kind == "ok" and self._value % SPOILT == 0)
        return sends

    def _written(self) -> int:
        """Which key is written to: one in use, or a new one in its place."""
        at = self._rng.randrange(KEYS)
        self._writes[at] += 1
        if self._writes[at] > WRITES_MAX:
            old = self._keys[at]
            self._put_of(GROUP, {old: self._group.pop(old)} if old in self._group else {})
            self._last_key += 1
            self._keys[at] = f"k-{self._last_key}"
            self._logs[at], self._ends[at], self._writes[at] = [], 0, 1
        return at

    def _polls(self, client: Client, *, moves: bool = True) -> tuple[str, list[list[Any]]]:
        """The next records of one of its keys; whether the next poll begins behind them is said by `moves`."""
        if client.subscribes:
            at = self._rng.randrange(client.slot, KEYS, MEMBERS)
            position = self._group.get(self._keys[at], (0, 0))[0]
        else:
            at = client.slot * 3 % KEYS
            position = client.at if client.key == self._keys[at] else 0
        key, log = self._keys[at], self._logs[at]
        first = bisect_left(log, (position, 0, 0))
        new = log[first : first + POLLS_MAX]
        if new and moves:
            client.key, client.at = key, new[-1][0] + 1
        return key, [[key, offset, value, number, 0] for offset, value, number in new]


def _op(f: str, client: Client, at_s: float, **fields: Any) -> Operation:
    times = {"began_s": round(at_s, 6), "ended_s": round(at_s + TAKES_S, 6)}
    return {"f": f, "type": "ok", "process": client.process, **fields, **times}


def make(file: Path, operations: int, spoil: int) -> int:
    """How many lines it has. Of what was acknowledged, `spoil` values are left out in the end."""
    final = [file.with_suffix(f".final-{part}") for part in range(KEYS)]
    told = file.with_suffix(".positions")
    lines = left_out = 0
    with contextlib.ExitStack() as open_files:
        sinks = [open_files.enter_context(each.open("w")) for each in final]
        positions = open_files.enter_context(told.open("w"))

        def keep(key: str, record: Record, may_be_spoilt: bool) -> None:
            nonlocal left_out
            if may_be_spoilt and left_out < spoil:
                left_out += 1
                return
            offset, value, number = record
            sinks[int(key[2:]) % KEYS].write(f'["{key}", {offset}, {value}, {number}, 0]\n')

        def tell(op: Operation) -> None:
            positions.write(f"{json.dumps(op)}\n")

        with file.open("w") as sink:
            for op in Made(operations, keep, tell).lines():
                sink.write(f"{json.dumps(op)}\n")
                lines += 1
    with file.open("a") as sink:
        at_s = operations * STEP_S + 60
        for polls in (piece for each in final for piece in _pieces(each)):
            at_s += STEP_S
            sink.write(
                f'{{"f": "read", "type": "ok", "process": "{FINAL}", "polls": [{polls}], '
                f'"began_s": {at_s:.6f}, "ended_s": {at_s:.6f}}}\n'
            )
            lines += 1
        with told.open() as source:
            for line in source:
                sink.write(line)
                lines += 1
    for each in (*final, told):
        each.unlink()
    return lines


def _pieces(file: Path) -> Iterator[str]:
    with file.open() as source:
        while piece := list(islice(source, FINAL_POLLS)):
            yield ", ".join(map(str.rstrip, piece))
