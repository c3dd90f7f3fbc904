"""Who asks a partition's leader where it ends is told of everything that had been acknowledged before.

INVARIANT  an end that was asked for after an acknowledgement had come is behind the acknowledged record, whoever leads by then.
PREVENTS   a leader that others have deposed telling readers that they have read all there is.
PROVED BY  tests/chaos/test_queue_stale_reads.py::test_an_end_below_what_was_acknowledged_before_it_was_asked_for_is_stale

This is the guarantee that Fencepost states, and the one that KIP-207 gave Kafka. Of polls no such thing is promised: a consumer may
lag behind, and reads what it had fetched before. What a transaction wrote is behind the end (not the stable one) as soon as it
has ended.
"""

from collections import defaultdict, deque
from typing import Final

from .history import Anomaly
from .txn_history import Txn

KEPT_S: Final = 120.0  # an answer takes less


class StaleReads:
    """`see` all operations in the order of their ends; of each key only the last minutes are kept, or its end."""

    def __init__(self) -> None:
        self.asked = 0
        # key -> (when it was acknowledged, the highest end until then, its line)
        self._known: dict[str, deque[tuple[float, int, int]]] = defaultdict(deque)
        self._keys: deque[tuple[float, str]] = deque()  # of all that is kept, in the order of time

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
        known = self._known[key]
        if known and known[-1][1] >= end:
            return
        known.append((op.ended_s, end, op.line))
        self._keys.append((op.ended_s, key))
        first_s = op.ended_s - KEPT_S
        while self._keys[0][0] < first_s:  # also of keys that nobody writes to any more
            old = self._known[self._keys.popleft()[1]]
            while len(old) > 1 and old[1][0] < first_s:
                old.popleft()

    def _look(self, op: Txn, key: str, end: int) -> list[Anomaly]:
        before = [each for each in self._known[key] if each[0] < op.began_s]
        if not before or before[-1][1] <= end:
            return []
        at_s, known, line = before[-1]
        what = f"{op.process} was told at {op.began_s:.3f} s that it ends at {end}; {known - 1} was acknowledged at {at_s:.3f} s"
        return [Anomaly("stale-read", key, what, (line, op.line))]
