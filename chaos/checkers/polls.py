"""A consumer sees each partition in order and without gaps, within one transaction and from one to the next.

INVARIANT  the first value that a process polls of a partition is the one behind the last that it polled there in an
           operation that was ok; values within one operation are neighbours. A rewind after a failure undoes its polls.
PREVENTS   a fetch that jumps over committed records, or goes back, when the leader or the stable offset moves.
PROVED BY  tests/chaos/test_txn_checkers.py::test_a_poll_that_leaves_out_a_committed_value_is_a_skip
"""

from .history import Anomaly
from .txn_history import Log, Polled, Txns


def check(history: Txns) -> list[Anomaly]:
    found: list[Anomaly] = []
    log = Log(history)
    last: dict[tuple[str, str], int] = {}
    for op in history:
        if op.f == "assign":
            # What it polled of others counts no more: it may begin anywhere when it gets them again.
            for process, key in list(last):
                if process == op.process and key not in op.positions:
                    del last[process, key]
            continue
        before: dict[str, int] = {}
        for polled in op.polls:
            name = "int-" if polled.key in before else ""
            known = before.get(polled.key, last.get((op.process, polled.key)))
            if known is not None:
                found += _step(log, op.process, polled, known, name)
            before[polled.key] = polled.value
        if op.type == "ok":
            last.update({(op.process, key): value for key, value in before.items()})
    return found


def _step(log: Log, process: str, polled: Polled, before: int, name: str) -> list[Anomaly]:
    here, there = log.rank(polled.key, polled.value), log.rank(polled.key, before)
    if here is None or there is None or here - there == 1:
        return []
    what = f"{process} polled {polled.value} after {before}"
    if here - there < 1:
        return [Anomaly(f"{name}nonmonotonic-poll", polled.key, what)]
    between = log.order[polled.key][there + 1 : here]
    return [Anomaly(f"{name}poll-skip", polled.key, f"{what}, without {between[:5]}")]
