"""What was acknowledged is there, and where it was said to be.

INVARIANT  the final pass sees every acknowledged record, at the offset of its acknowledgement, and all that
           any earlier pass had seen.
PREVENTS   a restart that cuts off what was acknowledged, or that gives its offset to another record.
PROVED BY  tests/chaos/test_checkers.py::test_an_acknowledged_record_that_nobody_finds_is_lost
"""

from .history import FINAL, Anomaly, History, reads, sends


def check(history: History) -> list[Anomaly]:
    found = {(op.key, op.writer, op.value): op.offset for op in reads(history, FINAL)}
    anomalies = []
    for op in sends(history, "ok"):
        record = (op.key, op.process, op.value)
        name = f"value {op.value} of producer {op.process}"
        if record not in found:
            what = f"{name} was acknowledged at offset {op.offset} and is not there"
            anomalies.append(Anomaly("lost", op.key, what))
        elif op.offset is not None and found[record] != op.offset:
            what = f"{name} was acknowledged at offset {op.offset} and is at {found[record]}"
            anomalies.append(Anomaly("moved", op.key, what))
    return anomalies + _unread(history)


def _unread(history: History) -> list[Anomaly]:
    """One offset holds one record for ever, whoever looks and whenever."""
    final = {(op.key, op.offset): (op.writer, op.value) for op in reads(history, FINAL)}
    anomalies = []
    for op in reads(history):
        now = final.get((op.key, op.offset))
        if now != (op.writer, op.value):
            was = f"value {op.value} of producer {op.writer}"
            is_now = "nothing" if now is None else f"value {now[1]} of producer {now[0]}"
            what = f"reader {op.process} saw {was} at offset {op.offset}, where is {is_now} now"
            anomalies.append(Anomaly("unread", op.key, what))
    return anomalies
