"""A transaction is seen whole or not at all, its group offsets with it.

INVARIANT  after the faults, every transaction that was acknowledged has all of its sends at read_committed, every failed
           one none, every unknown one all or none, and all if somebody had read one of them before; a group's position is
           that of the newest of its committed transactions, and where that one has put it; of a group that several share, no
           committed transaction has put it further.
PREVENTS   one account debited and the other never credited; an output without its input counted as consumed; a position
           that a coordinator tells under another's name.
PROVED BY  tests/chaos/test_txn_checkers.py::test_an_unknown_transaction_of_which_half_is_there_is_torn,
           tests/chaos/test_txn_checkers.py::test_a_position_is_where_the_transaction_that_it_names_has_put_it,
           tests/chaos/test_shared_positions.py::test_who_began_before_and_went_on_behind_another_member_has_the_position

Jepsen has no check of this name (it would show as lost-write and G1a); this one is stronger, and names the transaction.
"""

from .consumed import is_shared
from .history import FINAL, Anomaly
from .txn_history import NO_NUMBER, Txn, Txns, final_values, seen_values, transactions


def check(history: Txns) -> list[Anomaly]:
    final = final_values(history)
    if not any(op.process == FINAL for op in history):
        return []
    found = []
    seen = seen_values(history)
    committed: dict[int, Txn] = {}
    failed: dict[int, Txn] = {}
    for op in transactions(history):
        there = [sent for sent in op.sends if sent.value in final]
        is_committed = op.type == "ok" or (
            op.type == "info" and (bool(there) or any(sent.value in seen for sent in op.sends))
        )
        if len(there) != (len(op.sends) if is_committed else 0):
            missing = [sent for sent in op.sends if sent.value not in final]
            what = f"transaction {op.number} of {op.process} ({op.type} {op.why}) has {there}, not {missing}"
            found.append(Anomaly("torn", op.process, what, (op.line,)))
        if is_committed or there:
            committed[op.number] = op
        elif op.type == "fail" or op.sends:
            failed[op.number] = op
    return found + _positions(history, committed, failed) + _misplaced(history)


def _positions(history: Txns, committed: dict[int, Txn], failed: dict[int, Txn]) -> list[Anomaly]:
    """`committed` and `failed` are known by their sends. What is read of a group must agree with both."""
    found = []
    newest: dict[str, list[tuple[float, int]]] = {}
    for op in committed.values():
        for place in op.offsets:
            newest.setdefault(place, []).append((op.ended_s, op.number))
    for op in (each for each in history if each.f == "position"):
        for place, number in op.writers.items():
            if number in failed:
                what = (
                    f"{op.process} finds {op.offsets[place]} of transaction {number}, which failed"
                )
                lines = (failed[number].line, op.line)
                found.append(Anomaly("torn-offset", place, f"{what}: {failed[number].why}", lines))
            # An unknown one may be committed any time; after the faults it is what its sends show.
            before = [
                committed[each]
                for ended_s, each in newest.get(place, ())
                if op.process == FINAL or (committed[each].type == "ok" and ended_s <= op.began_s)
            ]
            last = _last(place, before)
            if last is not None and not _agrees(place, op, last):
                what = f"{op.process} finds {op.offsets[place]} of transaction {number}, not of"
                what += f" {last.number}, a committed one that put it at {last.offsets[place]}"
                found.append(Anomaly("torn-offset", place, what, (last.line, op.line)))
    return found


def _last(place: str, committed: list[Txn]) -> Txn | None:
    """Who has moved it last: in a group that several share, one that began before may go on behind one that began later."""
    if is_shared(place):
        return max(committed, key=lambda each: each.offsets[place], default=None)
    return max(committed, key=lambda each: each.number, default=None)


def _agrees(place: str, found: Txn, last: Txn) -> bool:
    """One that names that very transaction, and is elsewhere, is misplaced, and nothing else."""
    number = found.writers[place]
    if is_shared(place) and number not in (NO_NUMBER, last.number):
        return found.offsets[place] >= last.offsets[place]
    return number >= last.number


def _misplaced(history: Txns) -> list[Anomaly]:
    """A position names its transaction, and that one knows where it has put it. Those that name none are nobody's."""
    known = {op.number: op for op in transactions(history)}
    found = []
    for op in (each for each in history if each.f == "position"):
        for place, number in op.writers.items():
            writer = known.get(number)
            put = None if writer is None else writer.offsets.get(place)
            if number != NO_NUMBER and put != op.offsets[place]:
                where = "put it nowhere" if put is None else f"put it at {put}"
                what = (
                    f"{op.process} finds {op.offsets[place]} of transaction {number}, which {where}"
                )
                lines = (op.line,) if writer is None else (writer.line, op.line)
                found.append(Anomaly("torn-offset", place, what, lines))
    return found
