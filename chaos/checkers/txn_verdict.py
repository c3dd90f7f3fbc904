"""All checkers over one history of transactions: valid or not, with counts and the first anomalies of each kind.

By hand there is `queue_verdict.py`, which looks for what a history does not say as well.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from . import (
    aborted_reads,
    bank,
    compacted,
    consumed,
    cycles,
    damaged,
    exactly_once,
    lives,
    polls,
    sends,
    torn_transactions,
    txn_log,
    txn_lost,
)
from .history import FINAL, OPEN, Anomaly
from .txn_history import Txns, transactions
from .verdict import MEANWHILE, Verdict

Checks = Sequence[Callable[[Txns], list[Anomaly]]]
CHECKERS: Final[Checks] = (
    txn_log.check,
    aborted_reads.check,
    txn_lost.check,
    torn_transactions.check,
    polls.check,
    sends.check,
    consumed.check,
    cycles.check,
    bank.check,
    exactly_once.check,
    damaged.check,
)
# What can be said of a history that has not come to its end: who was read may not be in it yet.
OF_OPEN: Final[Checks] = (damaged.check,)
# Of topics that come and go: what is owed of them.
OF_LIVES: Final[Checks] = (
    txn_log.check,
    aborted_reads.check,
    txn_lost.check,
    torn_transactions.check,
    polls.check,
    sends.check,
    cycles.check,
    damaged.check,
)
# Of compacted topics, whose records may go.
OF_TABLES: Final[Checks] = (
    txn_log.check,
    aborted_reads.check,
    compacted.check,
    sends.check,
    damaged.check,
)


def check_lives(history: Txns) -> list[Anomaly]:
    """Of a history that says itself what was made, deleted and there in the end."""
    changes, found = lives.noted(history)
    owed = lives.owed(history, found)
    return lives.check(history, changes, found) + [
        anomaly for check in told_once(OF_LIVES) for anomaly in check(owed)
    ]


def told_once(checkers: Checks) -> Checks:
    """For who looks for damage on the way (`queue_verdict.py`)."""
    return [check for check in checkers if check is not damaged.check]


def judge(history: Txns, checkers: Checks = CHECKERS) -> Verdict:
    kinds = Counter(op.type for op in transactions(history))
    counts = {
        "acknowledged": kinds["ok"],
        "failed": kinds["fail"],
        "unknown": kinds["info"],
        MEANWHILE: sum(len(op.polls) for op in history if op.process != FINAL),
        "read at the end": sum(len(op.polls) for op in history if op.process == FINAL),
    }
    if any(op.f == OPEN for op in history):
        checkers = OF_OPEN
    return Verdict(tuple(anomaly for check in checkers for anomaly in check(history)), counts)
