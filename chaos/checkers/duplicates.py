"""What was written is there once, and nothing is there that was not written.

INVARIANT  a record sits at one offset at most, in the partition that it was sent to; a record whose send failed for certain
           sits nowhere. Whoever read it, somebody has sent it.
PREVENTS   a retry after a crash that the broker does not recognise as the batch that it already has; a batch that comes to
           lie in another partition, too.
PROVED BY  tests/chaos/test_checkers.py::test_a_retry_that_was_written_again_is_a_duplicate,
           tests/chaos/test_checkers.py::test_a_record_in_a_partition_that_nobody_sent_it_to_is_a_phantom
"""

from .history import FINAL, Anomaly, History, reads, sends


def check(history: History) -> list[Anomaly]:
    places: dict[tuple[str, int | str | None, int], list[int | None]] = {}
    for op in reads(history, FINAL):
        places.setdefault((op.key, op.writer, op.value), []).append(op.offset)
    anomalies = [
        Anomaly("duplicate", key, f"value {value} of producer {writer} is at offsets {offsets}")
        for (key, writer, value), offsets in places.items()
        if len(offsets) > 1
    ]
    for op in sends(history, "fail"):
        offsets = places.get((op.key, op.process, op.value))
        if offsets is not None:
            what = f"value {op.value} of producer {op.process} failed ({op.error}) and is there"
            anomalies.append(Anomaly("phantom", op.key, f"{what}, at offset {offsets[0]}"))
    return anomalies + _unsent(history)


def _unsent(history: History) -> list[Anomaly]:
    """What was sent is all written down by the end, of unknown outcome where nobody was answered."""
    sent = {(op.key, op.process, op.value) for op in sends(history, "ok", "fail", "info")}
    found: dict[tuple[str, int | None], Anomaly] = {}
    for op in reads(history):
        if (op.key, op.writer, op.value) not in sent:
            what = f"value {op.value} of producer {op.writer}, which nobody sent there, was read"
            where = f"at offset {op.offset} by {op.process}"
            found.setdefault((op.key, op.offset), Anomaly("phantom", op.key, f"{what} {where}"))
    return list(found.values())
