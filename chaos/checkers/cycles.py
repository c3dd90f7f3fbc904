"""Information flows one way: no committed transaction depends on itself through what others read (Adya's G1c).

INVARIANT  writer before reader, a process's transactions in their order, and what ended before what began after it: these
           together have no cycle.
PREVENTS   a transaction that reads from one that had read from it: each saw the other before it was committed.
PROVED BY  tests/chaos/test_txn_checkers.py::test_two_transactions_that_read_each_other_are_a_cycle

Edges between writers of neighbouring values (ww) are left out: Kafka interleaves the records of transactions, and so do we.
"""

from collections import defaultdict

from .history import Anomaly
from .txn_history import Log, Txns

Graph = dict[int, list[int]]


def check(history: Txns) -> list[Anomaly]:
    log = Log(history)
    ops = [
        op
        for op in history
        if op.polls or op.sends
        if log.is_committed(op) or (op.f == "read" and op.type == "ok")
    ]
    number = {id(op): place for place, op in enumerate(ops)}
    graph: Graph = defaultdict(list)
    newest: dict[str, int] = {}
    for place, op in enumerate(ops):
        for polled in op.polls:
            writer = number.get(id(log.writer.get(polled.value)))
            if writer is not None and writer != place:
                graph[writer].append(place)
        if op.process in newest:
            graph[newest[op.process]].append(place)
        newest[op.process] = place
    _add_real_time(graph, [(op.began_s, op.ended_s) for op in ops])
    found = []
    for cycle in components(graph):
        names = [f"{ops[at].process}/{ops[at].number}" for at in cycle if at < len(ops)]
        found.append(Anomaly("G1c", "all", f"a cycle among {', '.join(names[:8])}"))
    return found


def _add_real_time(graph: Graph, times: list[tuple[float, float]]) -> None:
    """A chain of moments, one for each end; what ended leads to its moment, a moment to all that began after it."""
    first = len(times)
    ends = sorted((ended, place) for place, (_, ended) in enumerate(times))
    for moment in range(len(ends) - 1):
        graph[first + moment].append(first + moment + 1)
    starts = sorted((began, place) for place, (began, _) in enumerate(times))
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
