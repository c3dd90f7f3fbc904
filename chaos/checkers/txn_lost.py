"""What was committed is found.

INVARIANT  a committed value is among what was read once something behind it was read; at the end every acknowledged
           value is read, and every one of unknown fate that somebody had been shown, whatever became of what he did with it:
           it was committed then.
PREVENTS   an acknowledged transaction that a failover forgets, or one that a reader has acted upon.
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
        found += _unseen(history, log)
    return found


def _unseen(history: Txns, log: Log) -> list[Anomaly]:
    """Nothing takes a record away that somebody has read: no retention and no compaction is at work in these histories."""
    final = final_values(history)
    tried = [op for op in history if op.type != "fail"]
    gone = [(op, sent) for op in tried for sent in op.sends if sent.value not in final]
    was_read = {sent.value for op, sent in gone if op.type == "info" and sent.value in log.seen}
    reads = ((polled.value, op) for op in reversed(history) for polled in op.saw)
    readers = {value: op for value, op in reads if value in was_read}
    found = []
    for op, sent in gone:
        what = f"{sent.value} of {op.process} at {sent.offset}"
        if op.type == "ok":
            found.append(Anomaly("unseen", sent.key, f"{what} was never found", (op.line,)))
        elif sent.value in readers:
            reader = readers[sent.value]
            what += f" was read by {reader.process}, and is not there at the end"
            lines = tuple(sorted({op.line, reader.line}))
            found.append(Anomaly("unseen", sent.key, what, lines))
    return found
