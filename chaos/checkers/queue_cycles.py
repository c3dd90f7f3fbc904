"""Cycles of information in a history that is too long to be held: G1c and its kin, as `cycles.py` has them.

INVARIANT  a cycle of the whole history is found, however far apart its members are.
PREVENTS   a checker that looks through a window and takes what it does not see for sound.
PROVED BY  tests/chaos/test_queue_stream.py::test_a_cycle_is_found_though_much_lies_between_its_members

Edges of time alone make no cycle: each has one from a writer to a reader that began before the writer had ended, and only such
edges, and who is at their ends, are held. What nothing that is left leads to, by an edge or by time, is taken away, from the
earliest on; what can never be taken away is on a cycle or behind one.
"""

import heapq
from collections import defaultdict
from pathlib import Path
from typing import Final

from . import cycles, queue_lines
from .history import Anomaly
from .queue_lines import FOREVER, Found, Lines
from .txn_history import Txn, WholeLines

LEFT_MAX: Final = 50_000  # then cycles are looked for among what is left, and taken away


class Knots:
    """What is left of the graph; a node is an operation, by its line."""

    def __init__(self, lines: Lines, found: Found) -> None:
        self.lines = lines
        self.found = found
        self._nodes: dict[int, Txn] = {}  # by line: those that are left
        self._targets: dict[int, list[int]] = defaultdict(list)
        self._waits: dict[int, int] = defaultdict(int)  # edges into it, from those that are left
        self._free: list[tuple[float, int]] = []  # (began_s, line): nothing leads there but time
        self._ends: list[tuple[float, int]] = []
        self._left_max = LEFT_MAX
        self._suspects: set[int] = set()
        self._found: list[Anomaly] = []

    def run(self, file: Path) -> None:
        edges = self.lines.edges
        for bucket in edges.numbers():
            for edge in edges.take(bucket):
                self._edge(*edge)
            self._take_away((bucket + 1) * queue_lines.EDGE_S)
            if len(self._nodes) > self._left_max:
                self._cut()
        self._take_away(FOREVER)
        self._cut()
        if self._suspects:
            self._name(file)

    def _edge(
        self,
        writer: int,
        writer_process: int,
        writer_began_s: float,
        writer_ended_s: float,
        reader: int,
        reader_process: int,
        reader_began_s: float,
        reader_ended_s: float,
    ) -> None:
        if not (self.lines.is_committed(writer) and self.lines.is_committed(reader)):
            return
        self._node(writer, writer_process, writer_began_s, writer_ended_s)
        self._node(reader, reader_process, reader_began_s, reader_ended_s)
        self._targets[writer].append(reader)
        self._waits[reader] += 1

    def _node(self, line: int, process: int, began_s: float, ended_s: float) -> None:
        if line in self._nodes:
            return
        op = Txn(
            "txn", "ok", str(process), line, line=line
        )  # its name is looked up when it is told
        op.began_s, op.ended_s = began_s, ended_s
        if ended_s == FOREVER:
            op.type = "info"
        self._nodes[line] = op
        heapq.heappush(self._free, (began_s, line))
        if ended_s != FOREVER:
            heapq.heappush(self._ends, (ended_s, line))

    def _take_away(self, until_s: float) -> None:
        """All that began before `until_s`, whose edges are therefore all known, and that nothing leads to."""
        while self._free and self._free[0][0] < until_s:
            began_s, line = self._free[0]
            waits = line not in self._nodes or self._waits[line]
            if not waits and began_s > self._first_end():
                return  # who had ended before it began is left: so it stays, as do all that began later
            heapq.heappop(self._free)
            if not waits:
                self._remove(line)  # who waits comes again when it waits no more

    def _first_end(self) -> float:
        while self._ends and self._ends[0][1] not in self._nodes:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else FOREVER

    def _remove(self, line: int) -> None:
        del self._nodes[line]
        self._waits.pop(line, None)
        for target in self._targets.pop(line, ()):
            if target in self._nodes:
                self._waits[target] -= 1
                if not self._waits[target]:
                    heapq.heappush(self._free, (self._nodes[target].began_s, target))

    def _cut(self) -> None:
        """See whether there are cycles among what is left; if so, take all of it away."""
        if not self._nodes:
            return
        ops = sorted(self._nodes.values(), key=lambda op: (op.began_s, op.line))
        number = {op.line: at for at, op in enumerate(ops)}
        edges = [
            (number[source], number[target])
            for source in sorted(self._nodes)
            for target in self._targets.get(source, ())
            if target in number
        ]
        found = cycles.named(ops, edges, "G1c")
        if not found:
            self._left_max *= 2  # they are many, and nothing is wrong with them
            return
        for op in ops:
            op.process = self.lines.processes.name(int(op.process))
        self._found += cycles.named(ops, edges, "G1c")
        for op in ops:
            self._suspects.add(op.line)
            self._remove(op.line)

    def _name(self, file: Path) -> None:
        """With all that its members did: edges that time implies were left out, and a cycle is named by the least it takes."""
        with file.open("rb") as source:
            ops = [op for op in WholeLines(source) if op.line in self._suspects]
        for each in cycles.check(ops) or self._found:
            self.found.add(each.rule, each.key, each.what, *each.operations)
