"""A compacted log keeps the newest of every key that was committed, and a reader of it misses only what was overtaken.

INVARIANT  at the end a key is at what was committed to it last, or at something newer; a tombstone that was committed last leaves
           nothing older. What a reader passes by is a tombstone, or there is a later record of its key, which had begun by then.
           A committed transaction misses only such records. Nobody goes back. Where tombstones are to stay they stay.
PREVENTS   a cleaner that takes the newest away, keeps what was aborted in its place, lets a deleted key come back, or drops a marker
           that a reader needs.
PROVED BY  tests/chaos/test_compacted.py::test_a_key_that_is_at_an_older_value_has_gone_back,
           tests/chaos/test_compacted.py::test_a_reader_that_is_not_shown_the_newest_of_a_key_has_passed_it_by,
           tests/chaos/test_compacted.py::test_a_tombstone_that_is_to_stay_is_there_at_the_end

The history is of tables alone (`workloads/txn_table.py`): `extra` is the key's number, below zero that of a tombstone. Where records are
deleted from the beginning on, too, the final pass says where each partition begins (`assign`): what is below is owed by nobody.
"""

from bisect import bisect_left
from collections import defaultdict
from typing import NamedTuple

from .history import FINAL, Anomaly
from .txn_history import Polled, Sent, Txn, Txns, final_values, seen_values, transactions

Key = tuple[str, int]  # partition, number of the key


class Entry(NamedTuple):
    """A send of a transaction that did not fail. `offset` is -1 where nobody knows it."""

    offset: int
    sent: Sent
    op: Txn
    is_committed: bool

    @property
    def is_tombstone(self) -> bool:
        return self.sent.extra < 0

    def may_be_behind(self, one: "Entry") -> bool:
        """Of unknown place is what was acknowledged without one: by whom who was through before the other began, it is before it.
        What was not acknowledged was not committed, as its client waits for that (`workloads/txn_client.py`)."""
        if self.offset >= 0:
            return self.offset > one.offset
        is_acknowledged = self.is_committed or self.sent.value in self.op.untold
        return is_acknowledged and self.op.ended_s >= one.op.began_s

    def __str__(self) -> str:
        word = "tombstone" if self.is_tombstone else "value"
        at = f"at {self.offset}" if self.offset >= 0 else "somewhere"
        return f"{word} {self.sent.value} {at} of transaction {self.op.number} of {self.op.process}"


class Tables:
    """What is known of each key, from acknowledgements and from all that was ever read."""

    def __init__(self, history: Txns) -> None:
        self.history = history
        self.seen = seen_values(history)
        self.final = final_values(history)
        self.starts: dict[str, int] = {}
        self.entries: dict[Key, list[Entry]] = defaultdict(list)
        self.of_op: dict[int, list[Entry]] = defaultdict(list)
        polled = {each.value: each.offset for op in history for each in op.saw}
        for op in history:
            if op.process == FINAL and op.f == "assign":
                self.starts |= op.positions
        for op in transactions(history):
            if op.type == "fail":
                continue
            is_committed = op.type == "ok" or any(sent.value in self.seen for sent in op.sends)
            for sent in op.sends:
                at = polled.get(sent.value, sent.offset)
                one = Entry(-1 if at is None else at, sent, op, is_committed)
                self.entries[sent.key, abs(sent.extra)].append(one)
                self.of_op[op.number].append(one)
        self.there: dict[Key, Polled] = {}
        for each in sorted(self.final.values(), key=lambda polled: polled.offset):
            self.there[each.key, abs(each.extra)] = each

    def is_owed(self, one: Entry) -> bool:
        """Not deleted with the log's beginning; where it is unknown, it may be anywhere."""
        start = self.starts.get(one.sent.key, 0)
        return one.offset >= start or (one.offset < 0 and not start)

    def maybe_taken(self, key: Key, one: Entry) -> bool:
        """A tombstone may have come behind it, and be gone by now."""
        return any(each.is_tombstone and each.may_be_behind(one) for each in self.entries[key])


def check(history: Txns) -> list[Anomaly]:
    tables = Tables(history)
    found = _passed_by(tables)
    if any(op.process == FINAL for op in history):
        found += _torn(tables) + _newest(tables)
    return found


def _newest(tables: Tables) -> list[Anomaly]:
    found = []
    for key, entries in sorted(tables.entries.items()):
        known = [
            each
            for each in entries
            if each.is_committed and each.offset >= 0 and tables.is_owed(each)
        ]
        if not known:
            continue
        newest, there = max(known, key=lambda each: each.offset), tables.there.get(key)
        where, lines = f"{key[0]} key {key[1]}", (newest.op.line,)
        if there is not None and there.offset < newest.offset:
            what = f"the newest at the end is {there.value} at {there.offset}, and {newest} was"
            found.append(Anomaly("key-back", where, f"{what} committed", lines))
        elif there is None and not newest.is_tombstone and not tables.maybe_taken(key, newest):
            what = f"nothing is there at the end, and {newest} was committed"
            found.append(Anomaly("key-lost", where, what, lines))
    return found


def tombstones(history: Txns) -> list[Anomaly]:
    """Of tables whose `delete.retention.ms` is longer than the run: a reader who comes late has to hear of what was taken away."""
    tables, found = Tables(history), []
    for key, entries in sorted(tables.entries.items()):
        known = [each for each in entries if each.is_committed and each.offset >= 0]
        newest = max(known, key=_offset_of, default=None)
        if newest is None or not newest.is_tombstone or not tables.is_owed(newest):
            continue
        there = tables.there.get(key)
        if there is None or there.offset < newest.offset:
            what = f"nothing is there at the end, and {newest} was committed and is to stay"
            where = f"{key[0]} key {key[1]}"
            found.append(Anomaly("tombstone-lost", where, what, (newest.op.line,)))
    return found


def _torn(tables: Tables) -> list[Anomaly]:
    """A transaction of which something is there, and something is missing that nothing has overtaken."""
    found = []
    for number, entries in sorted(tables.of_op.items()):
        there = [each for each in entries if each.sent.value in tables.final]
        missing = [each for each in entries if each.is_committed and _is_missed(tables, each)]
        if there and missing:
            op = entries[0].op
            what = f"transaction {number} of {op.process} ({op.type} {op.why}) has {len(there)} of"
            what += f" {len(entries)} entries, and not {missing[0]}"
            found.append(Anomaly("torn", op.process, what, (op.line,)))
    return found


def _is_missed(tables: Tables, one: Entry) -> bool:
    if one.sent.value in tables.final or one.is_tombstone or not tables.is_owed(one):
        return False
    key = one.sent.key, abs(one.sent.extra)
    there = tables.there.get(key)
    is_overtaken = there is not None and there.offset > one.offset
    return not is_overtaken and not tables.maybe_taken(key, one)


def _passed_by(tables: Tables) -> list[Anomaly]:
    found: list[Anomaly] = []
    by_place: dict[str, list[Entry]] = defaultdict(list)
    for entries in tables.entries.values():
        for each in entries:
            if each.is_committed and each.offset >= 0 and not each.is_tombstone:
                by_place[each.sent.key].append(each)
    for some in by_place.values():
        some.sort(key=_offset_of)
    at: dict[tuple[str, str], int] = defaultdict(int)
    for op in tables.history:
        if op.f == "assign":
            found += _moves(op, at)
        elif op.f == "read":
            for key, position in op.positions.items():
                found += _read(tables, op, key, at[op.process, key], by_place[key])
                at[op.process, key] = position
    return found


def _offset_of(one: Entry) -> int:
    return one.offset


def _moves(op: Txn, at: dict[tuple[str, str], int]) -> list[Anomaly]:
    """The log begins later than the reader was: never before that."""
    found = []
    for key, start in op.positions.items():
        before = at[op.process, key]
        if start < before:
            what = f"{op.process} was at {before}, and is sent to {start}"
            found.append(Anomaly("nonmonotonic-poll", key, what, (op.line,)))
        at[op.process, key] = max(start, before)
    return found


def _read(tables: Tables, op: Txn, key: str, before: int, committed: list[Entry]) -> list[Anomaly]:
    found, at = [], before - 1
    shown = set()
    for each in op.polls:
        if each.key != key:
            continue
        shown.add(each.value)
        if each.offset <= at:
            what = f"{op.process} polled {each.value} at {each.offset} after {at}"
            found.append(Anomaly("nonmonotonic-poll", key, what, (op.line,)))
        at = max(at, each.offset)
    first = bisect_left(committed, before, key=_offset_of)
    for one in committed[first : bisect_left(committed, op.positions[key], key=_offset_of)]:
        if one.sent.value not in shown and not _was_overtaken(tables, one, op.ended_s):
            what = f"{op.process} went from {before} to {op.positions[key]} without {one}"
            found.append(Anomaly("poll-skip", key, what, (one.op.line, op.line)))
    return found


def _was_overtaken(tables: Tables, one: Entry, by_s: float) -> bool:
    """By a record of its key, whose transaction had begun when it was passed by."""
    return any(
        each.may_be_behind(one) and each.op.began_s <= by_s
        for each in tables.entries[one.sent.key, abs(one.sent.extra)]
    )
