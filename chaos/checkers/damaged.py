"""Nobody is served damage: each record is one that somebody sent, byte by byte.

INVARIANT  what a client is served has the checksum that it was written with, and is a record of the run.
PREVENTS   bytes that rotted on a disk, or were put together wrongly, being handed to whoever asks for the record.
PROVED BY  tests/chaos/test_queue_checkers.py::test_what_a_client_could_not_read_is_told_with_its_place
"""

from .history import Anomaly
from .txn_history import Txn, Txns


def seen_by(op: Txn) -> list[Anomaly]:
    """Of one operation, as its client has noted it."""
    if op.f != "damaged":
        return []
    return [
        Anomaly("damaged", key, f"{op.process} was served at {offset}: {op.why}", (op.line,))
        for key, offset in op.positions.items()
    ]


def check(history: Txns) -> list[Anomaly]:
    return [anomaly for op in history for anomaly in seen_by(op)]
