"""Money is moved, never made: every transfer debits one account and credits another, in one transaction.

INVARIANT  in all that a reader has seen, the amounts add up to zero together with the sides of transfers that were still
           behind the place up to which it had read that partition.
PREVENTS   a reader that passed one side of a transfer: it was not stable when its neighbour was shown.
PROVED BY  tests/chaos/test_txn_checkers.py::test_a_transfer_of_which_one_side_was_passed_by_makes_money

One pass over several partitions is no moment in time: the stable offset of each stands where it stands. A transfer may show
with one side, but then the other side comes behind what was read, and comes in the end.
"""

from collections import defaultdict

from .history import FINAL, Anomaly
from .txn_history import Polled, Txns, final_values

ACCOUNTS = "bank-"


def check(history: Txns) -> list[Anomaly]:
    if not any(op.process == FINAL for op in history):
        return []  # nobody knows what came in the end: the harness says so
    sides: dict[int, list[Polled]] = defaultdict(list)
    for polled in final_values(history).values():
        if polled.key.startswith(ACCOUNTS):
            sides[polled.writer].append(polled)
    found = []
    for writer, both in sorted(sides.items()):
        if total := sum(side.extra for side in both):
            what = f"transfer {writer} is {both}: {total:+} in the end"
            found.append(Anomaly("bank-sum", both[0].key, what))
    sums: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for op in (each for each in history if each.f == "snapshot"):
        mine = sums[op.process]
        for polled in op.polls:
            mine[polled.writer] += polled.extra
        for writer in [writer for writer, total in mine.items() if total == 0]:
            del mine[writer]
        for writer, total in mine.items():
            behind = [s for s in sides[writer] if s.offset >= op.positions.get(s.key, 0)]
            if total + sum(side.extra for side in behind):
                what = f"{op.process} saw {total:+} of transfer {writer} at {op.positions}"
                found.append(
                    Anomaly(
                        "bank-snapshot", op.process, f"{what}; in the end it is {sides[writer]}"
                    )
                )
    return found
