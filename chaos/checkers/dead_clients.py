"""No fault of a broker may end an idempotent producer, or a reader.

INVARIANT  a producer that retries gets through; never is it told that it must end, nor anything on which librdkafka begins a new
           epoch by itself.
PREVENTS   OUT_OF_ORDER_SEQUENCE_NUMBER after a restart, which leaves an application without its producer; or, behind a batch
           that was sent back, with records that are written twice.
PROVED BY  tests/chaos/test_checkers.py::test_a_producer_that_was_told_to_end_is_an_anomaly
"""

from .history import Anomaly, History
from .txn_history import Txn


def check(history: History) -> list[Anomaly]:
    return [
        Anomaly("dead-client", f"client {op.process}", op.error or "no reason was given")
        for op in history
        if op.f == "die"
    ]


def seen_by(op: Txn) -> list[Anomaly]:
    """Of one operation of a transactional history."""
    if op.f != "die":
        return []
    return [Anomaly("dead-client", f"client {op.process}", op.why, (op.line,))]
