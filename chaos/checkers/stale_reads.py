"""Who asks a partition's leader where it ends is told of everything that had been acknowledged before.

INVARIANT  an end that was asked for after an acknowledgement had come is behind the acknowledged record, whoever leads by then.
PREVENTS   a leader that others have deposed telling readers that they have read all there is.
PROVED BY  tests/chaos/test_queue_stale_reads.py::test_an_end_below_what_was_acknowledged_before_it_was_asked_for_is_stale

This is the guarantee that Fencepost states, and the one that KIP-207 gave Kafka. Of polls no such thing is promised: a consumer may
lag behind, and reads what it had fetched before. What a transaction wrote is behind the end (not the stable one) as soon as it
has ended.
"""

from collections import deque
from typing import Final

from .history import Anomaly
from .txn_history import Txn

KEPT_S: Final = 120.0  # an answer takes less
SWEPT_S: Final = 30.0  # from one look for what is older to the next

End = tuple[float, int, int]  # when it was acknowledged, the highest end until then, its line


class StaleReads:
    """`see` all operations in the order of their ends; of each key only the last minutes are kept, or its end."""

    def __init__(self) -> None:
        self.asked = 0
        self._known: dict[str, deque[End]] = {}  # by key: of the last minutes
        self._older: dict[str, End] = {}  # the last one of a key that nobody wrote to since then
        self._swept_s = 0.0

    def see(self, op: Txn) -> list[Anomaly]:
        if op.f == "ends":
            self.asked += len(op.positions)
            return [
                found for key, end in op.positions.items() for found in self._look(op, key, end)
            ]
        if op.type == "ok":
            for sent in op.sends:
                if sent.offset is not None:
                    self._acknowledged(sent.key, sent.offset + 1, op)
        return []

    def _acknowledged(self, key: str, end: int, op: Txn) -> None:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = deque()
            if key in self._older:
                known.append(self._older.pop(key))
        if known and known[-1][1] >= end:
            return
        known.append((op.ended_s, end, op.line))
        if op.ended_s >= self._swept_s + SWEPT_S:
            self._sweep(op.ended_s)

    def _sweep(self, now_s: float) -> None:
        """Keys come and go by the hundred thousand: one that is not written to any more costs no more than its end."""
        self._swept_s = now_s
        for key, known in list(self._known.items()):
            while len(known) > 1 and known[1][0] < now_s - KEPT_S:
                known.popleft()
            if known[-1][0] < now_s - KEPT_S:
                self._older[key] = known[-1]
                del self._known[key]

    def _look(self, op: Txn, key: str, end: int) -> list[Anomaly]:
        ends = self._known.get(key) or ([self._older[key]] if key in self._older else [])
        before = next((each for each in reversed(ends) if each[0] < op.began_s), None)
        if before is None or before[1] <= end:
            return []
        at_s, known, line = before
        what = f"{op.process} was told at {op.began_s:.3f} s that it ends at {end}; {known - 1} was acknowledged at {at_s:.3f} s"
        return [Anomaly("stale-read", key, what, (line, op.line))]
