"""What a group has committed in a topic is told of it for as long as nobody asks for that topic's deletion.

INVARIANT  a position that was acknowledged by whoever knew the topic by its id is told of that id, or a later one is, and if it
           was committed in a transaction, from that one's end on; of a transaction whose position is told, the records are there.
PREVENTS   a position that was stored under the id of the topic before, and goes with it; a committed transaction of which the
           records are in the new topic and the position is nowhere.
PROVED BY  tests/chaos/test_kept_positions.py::test_a_position_that_was_acknowledged_and_is_not_told_is_lost,
           tests/chaos/test_kept_positions.py::test_a_position_of_a_transaction_that_failed_is_torn_off

A position names no topic id on the wire. But who knows a topic by its id has heard that it was made, so the one before it is
gone: by its name only this one can be meant, or one behind it. Whose deletion nobody had asked for when the answer came was
there all the time. Which of two positions counts is open where they were under way at one time, or one was sent twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from .history import FINAL, Anomaly
from .life_positions import Placed, ToldOf, deletions
from .lives import Change
from .txn_history import NO_NUMBER, Txn, Txns, final_values, seen_values


@dataclass(frozen=True, slots=True)
class Owed:
    """Whoever was told `told` was owed this position, or a later one."""

    told: ToldOf
    newest: Placed


class KeptPositions:
    """`history` has the transactions, and of their sends those that are owed (`lives.owed`)."""

    def __init__(
        self,
        placed: Iterable[Placed],
        told: Sequence[ToldOf],
        changes: Iterable[Change],
        history: Txns,
    ) -> None:
        self._placed: dict[int, Placed] = {each.number: each for each in placed}
        self._told = told
        self._deleted_s = deletions(changes)
        self._transactions = {op.number: op for op in history if op.f == "txn"}
        self._seen = seen_values(history)
        self._final = final_values(history)
        self.owed = [each for told in self._told if (each := self._owed(told)) is not None]

    def check(self) -> list[Anomaly]:
        lost = [self._lost(each) for each in self.owed]
        torn = [self._torn(each) for each in self._told]
        return [each for each in (*lost, *torn) if each is not None]

    def _owed(self, told: ToldOf) -> Owed | None:
        if told.answered_s >= self._deleted_s.get(told.topic_id, inf):
            return None
        place = told.group, told.topic, told.topic_id
        committed = [
            each
            for each in self._placed.values()
            if (each.group, each.topic, each.topic_id) == place and self._is_committed(each, told)
        ]
        if not committed:
            return None
        return Owed(told, max(committed, key=lambda each: each.asked_s))

    def _is_committed(self, placed: Placed, told: ToldOf) -> bool:
        """Before anybody asked; of an unknown transaction its records tell, when all has ended."""
        if placed.acknowledged_s >= told.asked_s:
            return False
        if not placed.in_transaction:
            return True
        op = self._transactions[placed.number]
        if op.type == "info":
            return told.who == FINAL and any(sent.value in self._seen for sent in op.sends)
        return op.type == "ok" and op.ended_s < told.asked_s

    def _lost(self, owed: Owed) -> Anomaly | None:
        told, newest = owed.told, owed.newest
        if told.number == newest.number:
            return None
        other = self._placed.get(told.number)
        if other is not None and not _is_before(other, newest):
            return None
        found = "no position" if told.number == NO_NUMBER else f"that of {told.number}"
        what = f"{told.who} was told {found} of {told.topic_id} in {told.group}"
        what += f" at {told.asked_s:.3f}, and {newest.number} had committed one, which was"
        what += f" acknowledged at {newest.acknowledged_s:.3f}"
        return Anomaly("position-lost", f"{told.topic}-0", what, self._lines(newest.number))

    def _torn(self, told: ToldOf) -> Anomaly | None:
        placed = self._placed.get(told.number)
        if placed is None or not placed.in_transaction or not _is_certain(placed):
            return None
        op = self._transactions[told.number]
        missing = [sent for sent in op.sends if sent.value not in self._final]
        if op.type == "fail":
            why = f"which failed: {op.why}"
        elif op.type == "info" and missing:
            why = f"of which {missing} is not there"
        else:
            return None
        what = f"{told.who} was told the position of transaction {told.number} in {told.group}, "
        lines = self._lines(told.number)
        return Anomaly("torn-offset", f"{told.topic}-0", what + why, lines)

    def _lines(self, number: int) -> tuple[int, ...]:
        op: Txn | None = self._transactions.get(number)
        return () if op is None or not op.line else (op.line,)


def _is_certain(placed: Placed) -> bool:
    """It arrived once, by the time at which it was acknowledged."""
    return placed.is_once and placed.acknowledged_s < inf


def _is_before(one: Placed, other: Placed) -> bool:
    return _is_certain(one) and one.acknowledged_s < other.asked_s
