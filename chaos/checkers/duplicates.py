"""What was written is there once, and nothing is there that was not written.

INVARIANT  a record sits at one offset at most; a record whose send failed for certain sits nowhere.
PREVENTS   a retry after a crash that the broker does not recognise as the batch that it already has.
PROVED BY  tests/chaos/test_checkers.py::test_a_retry_that_was_written_again_is_a_duplicate
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
    return anomalies
