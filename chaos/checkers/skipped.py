"""A reader is shown every record of a partition in its turn: it passes none by that is there.

INVARIANT  between two records that a reader was shown, one after the other, and before the first, there is none that the final pass
           finds there; but for what was deleted before it came so far.
PREVENTS   a fetch that jumps over committed records while the leader moves: they are there for whoever asks in the end, and the
           consumer that followed along has never seen them.
PROVED BY  tests/chaos/test_checkers.py::test_a_reader_that_passes_a_record_by_has_skipped_it

Every reader of such a history begins at the beginning of its partition, or where it was told that this one begins (`start`).
"""

from bisect import bisect_left
from collections import defaultdict

from .history import FINAL, Anomaly, History, reads

SHOWN_MAX = 5


def check(history: History) -> list[Anomaly]:
    there: dict[str, list[int]] = defaultdict(list)
    for op in reads(history, FINAL):
        if op.offset is not None:
            there[op.key].append(op.offset)
    for offsets in there.values():
        offsets.sort()
    anomalies = []
    at: dict[tuple[int | str, str], int] = {}  # where each reader goes on
    for op in history:
        if op.f not in ("read", "start") or op.process == FINAL or op.offset is None:
            continue
        begins = at.get((op.process, op.key), 0)
        if op.f == "start":
            at[op.process, op.key] = max(begins, op.offset)
            continue
        at[op.process, op.key] = op.offset + 1
        known = there.get(op.key, [])
        passed = known[bisect_left(known, begins) : bisect_left(known, op.offset)]
        if passed:
            some = f"{passed[:SHOWN_MAX]}{' and more' if len(passed) > SHOWN_MAX else ''}"
            what = f"reader {op.process} was shown {op.offset} and not {some}, which is there"
            anomalies.append(Anomaly("skipped", op.key, what))
    return anomalies
