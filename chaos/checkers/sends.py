"""What a process sends to a partition is there in the order in which it sent it, within one operation and from one to the next.

INVARIANT  the place of what a process sends is behind the place of all that it sent there before, unless that is nowhere; along
           a partition, the values of each process rise.
PREVENTS   a batch that overtakes the one before it on its way through a new leader.
PROVED BY  tests/chaos/test_queue_checkers.py::test_a_send_that_comes_before_an_earlier_one_is_not_monotonic,
           tests/chaos/test_txn_checkers.py::test_two_transfers_of_one_teller_that_changed_places_are_out_of_order

A process sends in the order of its operations' numbers; it may have several open, and histories are in the order of their ends.

`int-send-skip`, somebody else's record between two of one operation, is told and allowed (`skips`): a transaction is seen whole
or not at all, but its records need not be neighbours. Writers interleave, in Kafka too.
"""

from typing import NamedTuple

from .history import Anomaly
from .txn_history import Log, Txns


class Last(NamedTuple):
    value: int
    line: int


class Step(NamedTuple):
    """From one value that a process sent to a key to the next: their ranks, and what names both."""

    here: int
    there: int
    within: bool  # one operation
    key: str
    what: str
    lines: tuple[int, ...]


def check(history: Txns) -> list[Anomaly]:
    log = Log(history)
    return [
        Anomaly(
            f"{'int-' if step.within else ''}nonmonotonic-send", step.key, step.what, step.lines
        )
        for step in _steps(history, log)
        if step.here <= step.there
    ] + _key_order(log)


def skips(history: Txns) -> list[Anomaly]:
    return [
        Anomaly("int-send-skip", step.key, step.what, step.lines)
        for step in _steps(history, Log(history))
        if step.within and step.here > step.there + 1
    ]


def _steps(history: Txns, log: Log) -> list[Step]:
    found: list[Step] = []
    last: dict[tuple[str, str], Last] = {}
    for op in sorted(history, key=lambda op: op.number):
        if op.type == "fail":
            continue
        before: dict[str, Last] = {}
        for sent in op.sends:
            here = log.rank(sent.key, sent.value)
            if here is None:
                continue  # it is nowhere, as far as anybody knows
            known = before.get(sent.key, last.get((op.process, sent.key)))
            if known is not None:
                there = log.rank(sent.key, known.value)
                assert there is not None, "only what has a place was kept"
                what = f"{op.process} sent {known.value}, which is at place {there}, then {sent.value}, at {here}"
                lines = tuple(sorted({known.line, op.line}))
                found.append(Step(here, there, sent.key in before, sent.key, what, lines))
            before[sent.key] = Last(sent.value, op.line)
        last.update({(op.process, key): value for key, value in before.items()})
    return found


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
