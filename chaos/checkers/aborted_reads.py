"""Nobody reads what was aborted (Adya's G1a), nor what its own transaction has not committed yet.

INVARIANT  a value that was polled at read_committed was sent by a transaction that did not fail, and was sent before.
PREVENTS   a consumer acting on a record that is taken back.
PROVED BY  tests/chaos/test_txn_checkers.py::test_a_value_of_a_failed_transaction_that_was_read_is_an_aborted_read
"""

from .history import Anomaly
from .txn_history import Log, Txns


def check(history: Txns) -> list[Anomaly]:
    found = []
    writer_of = Log(history).writer
    for op in history:
        mine = {sent.value for sent in op.sends}
        for polled in op.saw:
            writer = writer_of.get(polled.value)
            where = f"{op.process} read {polled.value} at {polled.offset}"
            if writer is None:
                what = f"{where}, which nobody sent"
                found.append(Anomaly("phantom", polled.key, what, (op.line,)))
            elif all((sent.key, sent.value) != (polled.key, polled.value) for sent in writer.sends):
                what = f"{where}, which was sent elsewhere"
                found.append(Anomaly("phantom", polled.key, what, (writer.line, op.line)))
            elif polled.value in mine:
                what = f"{where} before its end"
                found.append(Anomaly("precommitted-read", polled.key, what, (op.line,)))
            elif writer.type == "fail":
                what = f"{where}, of transaction {writer.number} of {writer.process}, which failed"
                lines = (writer.line, op.line)
                found.append(Anomaly("G1a", polled.key, f"{what}: {writer.why}", lines))
    return found
