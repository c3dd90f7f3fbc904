"""A consumer sees each partition in order and without gaps, within one transaction and from one to the next.

INVARIANT  the first value that a process polls of a partition is the one behind the last that it polled there in an
           operation that was ok, or the first from where it was to begin, if that is known (`begins_of`); values within one
           operation are neighbours, also of a partition that its group gave it in between: what it was shown before that is
           nothing that it polled (`shown`). A rewind after a failure undoes its polls.
PREVENTS   a fetch that jumps over committed records, or goes back, when the leader or the stable offset moves; a wrong word of
           where a log begins, or of where a group is.
PROVED BY  tests/chaos/test_txn_checkers.py::test_a_poll_that_leaves_out_a_committed_value_is_a_skip,
           tests/chaos/test_first_polls.py::test_who_passes_by_what_is_there_in_its_first_poll_has_skipped_it
"""

from typing import NamedTuple

from .history import Anomaly
from .txn_history import Log, Polled, Txn, Txns, begins_of


class Step(NamedTuple):
    """What was polled last of a partition, and in which line; without a value: what is before the place where it begins."""

    value: int | None
    offset: int
    line: int


def check(history: Txns) -> list[Anomaly]:
    found: list[Anomaly] = []
    log = Log(history)
    last: dict[tuple[str, str], Step] = {}
    for op in history:
        if op.f in ("assign", "subscribe"):
            # What it polled of others counts no more: it may begin anywhere when it gets them again.
            for process, key in list(last):
                if process == op.process and key not in op.positions:
                    del last[process, key]
        for key, at in begins_of(op).items():
            last.setdefault((op.process, key), Step(None, at - 1, op.line))
        before: dict[str, Step] = {}
        for polled in op.polls:
            name = "int-" if polled.key in before else ""
            known = before.get(polled.key, last.get((op.process, polled.key)))
            if known is not None:
                found += _step(log, op, polled, known, name)
            before[polled.key] = Step(polled.value, polled.offset, op.line)
        if op.type == "ok":
            last.update({(op.process, key): step for key, step in before.items()})
    return found


def _rank(log: Log, key: str, step: Step) -> int:
    if step.value is None:
        return log.rank_below(key, step.offset + 1)
    return log.place(key, step.offset)


def _step(log: Log, op: Txn, polled: Polled, before: Step, name: str) -> list[Anomaly]:
    here, there = log.place(polled.key, polled.offset), _rank(log, polled.key, before)
    if here - there == 1:
        return []
    where = "its beginning" if before.value is None else str(before.value)
    what = f"{op.process} polled {polled.value} after {where}"
    lines = tuple(sorted({before.line, op.line}))
    if here - there < 1:
        return [Anomaly(f"{name}nonmonotonic-poll", polled.key, what, lines)]
    between = log.order[polled.key][there + 1 : here]
    what += f", without {between[:5]}"
    return [Anomaly(f"{name}poll-skip", polled.key, what, lines)]
