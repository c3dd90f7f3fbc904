"""Information flows one way: no committed transaction depends on itself (Adya's G1c), not even through what others read or when.

INVARIANT  writer before reader (G1c), with each process's transactions in their order (G1c-process), with what ended before
           what began after it (G1c-realtime): these have no cycle.
PREVENTS   a transaction that reads from one that had read from it: each saw the other before it was committed.
PROVED BY  tests/chaos/test_txn_checkers.py::test_two_transactions_that_read_each_other_are_a_cycle

Edges between writers of neighbouring values (ww) are left out of these: Kafka interleaves the records of transactions, and so do
we. Cycles of them are G0, G0-process and G0-realtime, which are told and allowed (`write_cycles`).
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from .history import Anomaly
from .txn_history import Log, Txn, Txns

Graph = dict[int, list[int]]
Edge = tuple[int, int]
SHOWN_MAX: Final = 8


def check(history: Txns) -> list[Anomaly]:
    log = Log(history)
    ops = nodes(history, log)
    number = {id(op): place for place, op in enumerate(ops)}
    reads = []
    for place, op in enumerate(ops):
        for polled in op.polls:
            writer = number.get(id(log.writer.get(polled.value)))
            if writer is not None and writer != place:
                reads.append((writer, place))
    return named(ops, reads, "G1c")


def write_cycles(history: Txns) -> list[Anomaly]:
    log = Log(history)
    ops = nodes(history, log)
    number = {id(op): place for place, op in enumerate(ops)}
    writes = []
    for order in log.order.values():
        writers = [number.get(id(log.writer.get(value))) for value in order]
        for one, other in pairwise(writers):
            if one is not None and other is not None and one != other:
                writes.append((one, other))
    return named(ops, writes, "G0")


def nodes(history: Txns, log: Log) -> list[Txn]:
    """What is committed, and what was read."""
    return [
        op
        for op in history
        if op.polls or op.sends
        if log.is_committed(op) or (op.f == "read" and op.type == "ok")
    ]


def named(ops: list[Txn], edges: Iterable[Edge], name: str) -> list[Anomaly]:
    """Cycles of these edges, then those that take processes' orders, then those that take time: each by the least it takes."""
    graph: Graph = defaultdict(list)
    for source, target in edges:
        graph[source].append(target)
    found: list[Anomaly] = []
    told: set[int] = set()
    for suffix, more in (("", None), ("-process", _add_processes), ("-realtime", _add_real_time)):
        if more is not None:
            more(graph, ops)
        for cycle in components(graph):
            members = [at for at in cycle if at < len(ops)]
            if told.isdisjoint(members):
                told.update(members)
                names = [f"{ops[at].process}/{ops[at].number}" for at in members[:SHOWN_MAX]]
                lines = tuple(sorted(ops[at].line for at in members))[:SHOWN_MAX]
                what = f"a cycle among {', '.join(names)}"
                found.append(Anomaly(f"{name}{suffix}", "all", what, lines))
    return found


def _add_processes(graph: Graph, ops: list[Txn]) -> None:
    newest: dict[str, int] = {}
    for place, op in enumerate(ops):
        if op.process in newest:
            graph[newest[op.process]].append(place)
        newest[op.process] = place


def _add_real_time(graph: Graph, ops: list[Txn]) -> None:
    """A chain of moments, one for each end; what ended leads to its moment, a moment to all that began after it.

    What is of unknown outcome has no end: it may have taken effect at any time.
    """
    first = len(ops)
    ends = sorted((op.ended_s, place) for place, op in enumerate(ops) if op.type == "ok")
    for moment in range(len(ends) - 1):
        graph[first + moment].append(first + moment + 1)
    starts = sorted((op.began_s, place) for place, op in enumerate(ops))
    moment = -1
    for began, place in starts:
        while moment + 1 < len(ends) and ends[moment + 1][0] < began:
            moment += 1
        if moment >= 0:
            graph[first + moment].append(place)
    for moment, (_, place) in enumerate(ends):
        graph[place].append(first + moment)


def components(graph: Graph) -> list[list[int]]:
    """Strongly connected components of more than one node (Tarjan's, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    found: list[list[int]] = []
    for root in sorted(graph):
        work = [(root, iter(graph.get(root, ())))] if root not in index else []
        while work:
            node, others = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                waiting.add(node)
            for other in others:
                if other not in index:
                    work.append((other, iter(graph.get(other, ()))))
                    break
                if other in waiting:
                    low[node] = min(low[node], low[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    place = stack.index(node)
                    component, stack[place:] = stack[place:], []
                    waiting.difference_update(component)
                    if len(component) > 1:
                        found.append(sorted(component))
    return found
