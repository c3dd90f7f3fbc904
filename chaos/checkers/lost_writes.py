"""What was acknowledged is there, and where it was said to be.

INVARIANT  the final pass sees every acknowledged record, at the offset of its acknowledgement, and all that
           any earlier pass had seen; but for what lies before the place where the partition begins for it.
PREVENTS   a restart that cuts off what was acknowledged, or that gives its offset to another record.
PROVED BY  tests/chaos/test_checkers.py::test_an_acknowledged_record_that_nobody_finds_is_lost,
           tests/chaos/test_deletions.py::test_of_what_was_deleted_nothing_is_lost_and_of_the_rest_all_counts

Whether it may begin there is for `deletions.py` to say.
"""

from .history import FINAL, Anomaly, History, Operation, reads, sends, starts


def check(history: History) -> list[Anomaly]:
    begins = starts(history, FINAL)
    first_kept = _first_kept(history, begins)
    found = {(op.key, op.writer, op.value): op.offset for op in reads(history, FINAL)}
    anomalies = []
    for op in sends(history, "ok"):
        record = (op.key, op.process, op.value)
        name = f"value {op.value} of producer {op.process}"
        if record not in found:
            if _was_deleted(op, begins, first_kept):
                continue
            what = f"{name} was acknowledged at offset {op.offset} and is not there"
            anomalies.append(Anomaly("lost", op.key, what))
        elif op.offset is not None and found[record] != op.offset:
            what = f"{name} was acknowledged at offset {op.offset} and is at {found[record]}"
            anomalies.append(Anomaly("moved", op.key, what))
    return anomalies + _unread(history, begins)


def all_deleted(history: History) -> bool:
    """Nothing that was acknowledged is left: all of it was before the place where its partition begins at the end."""
    begins = starts(history, FINAL)
    first_kept = _first_kept(history, begins)
    return all(_was_deleted(op, begins, first_kept) for op in sends(history, "ok"))


Kept = dict[tuple[str, int | str | None], int]


def _first_kept(history: History, begins: dict[str, int]) -> Kept:
    """Of each producer and partition that does not begin at 0: its first value that is known to be, or to have been, behind that."""
    first: Kept = {}
    for op in history:
        if op.key in begins and op.offset is not None and op.offset >= begins[op.key]:
            writer = op.process if op.f == "send" else op.writer
            if op.f in ("send", "read"):
                first[op.key, writer] = min(op.value, first.get((op.key, writer), op.value))
    return first


def _was_deleted(op: Operation, begins: dict[str, int], first_kept: Kept) -> bool:
    """It was before the place where all begins now. Where its offset was not told it is before what its producer sent later."""
    if op.key not in begins:
        return False
    if op.offset is not None:
        return op.offset < begins[op.key]
    first = first_kept.get((op.key, op.process))
    return first is None or op.value < first


def _unread(history: History, begins: dict[str, int]) -> list[Anomaly]:
    """One offset holds one record for ever, whoever looks and whenever."""
    final = {(op.key, op.offset): (op.writer, op.value) for op in reads(history, FINAL)}
    anomalies = []
    for op in reads(history):
        if op.offset is not None and op.offset < begins.get(op.key, 0):
            continue
        now = final.get((op.key, op.offset))
        if now != (op.writer, op.value):
            was = f"value {op.value} of producer {op.writer}"
            is_now = "nothing" if now is None else f"value {now[1]} of producer {now[0]}"
            what = f"reader {op.process} saw {was} at offset {op.offset}, where is {is_now} now"
            anomalies.append(Anomaly("unread", op.key, what))
    return anomalies
