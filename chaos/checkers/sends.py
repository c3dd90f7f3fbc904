"""What a process sends to a partition is there in the order in which it sent it, within one operation and from one to the next.

INVARIANT  the place of what a process sends is behind the place of all that it sent there before, unless that is nowhere; along
           a partition, the values of each process rise.
PREVENTS   a batch that overtakes the one before it on its way through a new leader.
PROVED BY  tests/chaos/test_queue_checkers.py::test_a_send_that_comes_before_an_earlier_one_is_not_monotonic

`int-send-skip`, somebody else's record between two of one operation, is told and allowed: writers interleave, in Kafka too.
"""

from typing import NamedTuple

from .history import Anomaly
from .txn_history import Log, Sent, Txn, Txns


class Last(NamedTuple):
    value: int
    line: int


def check(history: Txns) -> list[Anomaly]:
    found: list[Anomaly] = []
    log = Log(history)
    last: dict[tuple[str, str], Last] = {}
    for op in history:
        if op.type == "fail":
            continue
        before: dict[str, Last] = {}
        for sent in op.sends:
            if log.rank(sent.key, sent.value) is None:
                continue  # it is nowhere, as far as anybody knows
            name = "int-" if sent.key in before else ""
            known = before.get(sent.key, last.get((op.process, sent.key)))
            if known is not None:
                found += _step(log, op, sent, known, name)
            before[sent.key] = Last(sent.value, op.line)
        last.update({(op.process, key): value for key, value in before.items()})
    return found + _key_order(log)


def _step(log: Log, op: Txn, sent: Sent, before: Last, name: str) -> list[Anomaly]:
    here, there = log.rank(sent.key, sent.value), log.rank(sent.key, before.value)
    assert here is not None and there is not None, "both have a place"
    lines = tuple(sorted({before.line, op.line}))
    what = (
        f"{op.process} sent {before.value}, which is at place {there}, then {sent.value}, at {here}"
    )
    if here <= there:
        return [Anomaly(f"{name}nonmonotonic-send", sent.key, what, lines)]
    if name and here > there + 1:
        return [Anomaly("int-send-skip", sent.key, what, lines)]
    return []


def _key_order(log: Log) -> list[Anomaly]:
    """Whatever their senders were told of offsets."""
    found = []
    for key, order in sorted(log.order.items()):
        newest: dict[str, Last] = {}
        for value in order:
            writer = log.writer.get(value)
            if writer is None:
                continue
            before = newest.get(writer.process)
            if before is not None and value < before.value:
                what = f"{value} of {writer.process} comes after its {before.value}"
                found.append(Anomaly("key-order", key, what, (before.line, writer.line)))
            newest[writer.process] = Last(value, writer.line)
    return found
