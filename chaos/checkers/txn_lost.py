"""What was committed is found.

INVARIANT  a committed value is among what was read once something behind it was read; at the end every acknowledged
           value has been read.
PREVENTS   an acknowledged transaction that a failover forgets.
PROVED BY  tests/chaos/test_txn_checkers.py::test_a_committed_value_below_one_that_was_read_is_lost
"""

from .history import FINAL, Anomaly
from .txn_history import Log, Txns, final_values


def check(history: Txns) -> list[Anomaly]:
    found = []
    log = Log(history)
    for key, order in sorted(log.order.items()):
        places = (log.rank(key, value) for value in order if value in log.seen)
        bound = max((place for place in places if place is not None), default=-1)
        for value in order[: bound + 1]:
            writer = log.writer.get(value)
            if value not in log.seen and writer is not None and log.is_committed(writer):
                what = f"{value} of {writer.process}, though {order[bound]} behind it was read"
                lines = (writer.line, *log.lines([order[bound]])[-1:])
                found.append(Anomaly("lost-write", key, what, lines))
    if any(op.process == FINAL for op in history):
        final = final_values(history)
        for op in history:
            for sent in op.sends:
                if op.type == "ok" and sent.value not in final:
                    what = f"{sent.value} of {op.process} at {sent.offset} was never found"
                    found.append(Anomaly("unseen", sent.key, what, (op.line,)))
    return found
