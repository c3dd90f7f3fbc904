"""What a group consumes in transactions it consumes once: no record is passed by, none is worked on twice, whoever has the partition.

INVARIANT  of each partition, what the committed transactions of one group polled and moved its position over are neighbours:
           each begins where the one before ended, and the first at the first record.
PREVENTS   a member that goes on from its own memory after a rebalance; a fenced member's positions that come through; positions
           that a new coordinator does not know, so that records are worked on again.
PROVED BY  tests/chaos/test_consumed.py::test_a_record_that_two_members_have_worked_on_is_repeated

Jepsen allows skips and repeats between polls of consumers that subscribe, since positions may go back there. Within transactions
that are fenced by their group's generation (KIP-447) they may not. A transaction of unknown fate may fill a gap, or not.
"""

from typing import Final, NamedTuple

from .history import FINAL, Anomaly
from .txn_history import Log, Txn, Txns, transactions

# Groups that several share, and that poll in transactions alone.
MEMBERS: Final = "members"  # of the new protocol (KIP-848)
GROUPS: Final = ("lists", "pipeline", "pipeline-ids", "queue", MEMBERS)


def is_shared(place: str) -> bool:
    """Whether it is a place of such a group: its position only rises, whichever of its members moves it."""
    return place.partition("|")[0] in GROUPS


class Step(NamedTuple):
    """A transaction's way through one partition, in ranks of its records."""

    first: int
    last: int
    op: Txn


def check(history: Txns) -> list[Anomaly]:
    log = Log(history)
    has_final = any(op.process == FINAL for op in history)
    known: dict[str, list[Step]] = {}
    perhaps: dict[str, list[Step]] = {}
    for op in transactions(history):
        is_there = log.is_committed(op)
        if not is_there and (op.type == "fail" or (op.sends and has_final)):
            continue  # of an unknown one with sends, those show in the end that it was not committed
        for place in op.offsets:
            step = _step(log, op, place.partition("|")[2])
            if is_shared(place) and step is not None:
                (known if is_there else perhaps).setdefault(place, []).append(step)
    found: list[Anomaly] = []
    for place in sorted(known):
        in_order = sorted(known[place], key=lambda step: (step.first, step.op.number))
        found += _walk(place, in_order, perhaps.get(place, []))
    return found


def _step(log: Log, op: Txn, key: str) -> Step | None:
    ranks = [log.rank(key, polled.value) for polled in op.polls if polled.key == key]
    seen = [rank for rank in ranks if rank is not None]
    return Step(min(seen), max(seen), op) if seen else None


def _walk(place: str, known: list[Step], perhaps: list[Step]) -> list[Anomaly]:
    found = []
    next_rank, before, line = 0, "the beginning", 0
    for step in known:
        who = f"transaction {step.op.number} of {step.op.process}"
        if step.first < next_rank:
            what = f"{who} begins at record {step.first}, though {before} went up to {next_rank}"
            lines = tuple(sorted({line, step.op.line} - {0}))
            found.append(Anomaly("group-repeat", place, what, lines))
        elif step.first > next_rank and not _filled(next_rank, step.first, perhaps):
            what = f"{who} begins at record {step.first}, and {before} ended before {next_rank}"
            lines = tuple(sorted({line, step.op.line} - {0}))
            found.append(Anomaly("group-skip", place, what, lines))
        next_rank, before, line = max(next_rank, step.last + 1), who, step.op.line
    return found


def _filled(start: int, end: int, perhaps: list[Step]) -> bool:
    """Whether transactions of unknown fate lead from one record to the other."""
    reached = {start}
    for step in sorted(perhaps, key=lambda each: each.first):
        if step.first in reached:
            reached.add(step.last + 1)
    return end in reached
