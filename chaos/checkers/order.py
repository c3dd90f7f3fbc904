"""A producer's records are in a partition in the order in which it sent them.

INVARIANT  along a partition's offsets, the values of each producer ascend; a pass over it goes upwards.
PREVENTS   a batch that overtakes the one before it after a reconnect, and a fetch that goes back.
PROVED BY  tests/chaos/test_checkers.py::test_a_batch_that_overtook_another_is_out_of_order
"""

from .history import Anomaly, History, reads


def check(history: History) -> list[Anomaly]:
    anomalies = []
    newest: dict[tuple[int | str, str, int | str | None], int] = {}
    position: dict[tuple[int | str, str], int] = {}
    for op in reads(history):
        assert op.offset is not None, "a read has an offset"
        before = position.get((op.process, op.key))
        if before is not None and op.offset <= before:
            what = f"reader {op.process} got offset {op.offset} after {before}"
            anomalies.append(Anomaly("backwards", op.key, what))
        position[op.process, op.key] = op.offset
        last = newest.get((op.process, op.key, op.writer))
        # The same value again is the duplicate checker's business.
        if last is not None and op.value < last:
            what = f"value {op.value} of producer {op.writer} comes after {last}"
            anomalies.append(Anomaly("reordered", op.key, f"{what}, at offset {op.offset}"))
        newest[op.process, op.key, op.writer] = op.value
    return anomalies
