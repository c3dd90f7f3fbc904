"""When too many nodes were away for anything to be owed: of a partition's copies all but one must be there (`min.insync.replicas`).

INVARIANT  a time is excused only by nodes that a fault took away then, or by one fault that hindered more nodes than may be missed;
           or in part, by what the machine had to do besides (`busy.py`).
PREVENTS   a wrong clock on one node excusing that another, which was killed, is missed for ever; syncs that take 3 ms
           longer being taken for nodes that are away.
PROVED BY  tests/chaos/test_queue_availability.py::test_a_fault_that_hinders_a_node_is_no_excuse_for_what_takes_another_away,
           tests/chaos/test_queue_availability.py::test_disks_that_are_slower_by_milliseconds_are_no_excuse_on_however_many_nodes
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any, Final

from .busy import Machine
from .promised import NEVER, RING, SLIGHT, form_of

STRUCK: Final = "struck"  # in a fault's line, and false: it failed, and nobody knows what it did
AVAILABLE_S: Final = (
    30.0  # with a transaction of a dead client that has to time out first, on a busy machine
)
SETTLE_S: Final = 10.0  # of them, anew whenever too many were away: for leaders to be found again
LOST_MAX: Final = 1  # copies that a partition may miss, however many nodes there are
# Nodes go on, slower or with wrong clocks: an excuse only where one fault has it done to too many.
HINDERS: Final = frozenset({"slow", "clock"})
# Nodes that wait for their disks a little longer, each time, are all there (`faults/disk_faults.py`: 100 ms at most).
NO_EXCUSE: Final = frozenset({("disk-slow", SLIGHT)})
# What a person may do at any time.
HARMLESS: Final = frozenset({"drain", "rebalance"})
ONE_BY_ONE: Final = frozenset({"restart", "upgrade"})  # the next goes when the one before it serves
ANYBODY: Final = 0  # a node of such a fault: which one is away when, nobody has noted


def whole_faults(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each fault the last line."""
    found = {str(line.get("id")): dict(line) for line in lines if "at_s" in line}
    return sorted(found.values(), key=lambda line: float(line["at_s"]))


def until_of(fault: Mapping[str, Any], healed_s: float | None) -> float:
    """One that never ended by itself has ended when all were healed."""
    until_s = fault.get("until_s")
    if until_s is None:
        until_s = NEVER if healed_s is None else healed_s
    return float(until_s)


class Excused:
    """The times in which too many were away, from the first moment of each to its last."""

    def __init__(
        self,
        faults: Iterable[Mapping[str, Any]],
        nodes: int,
        healed_s: float | None,
        machine: Machine | None = None,
        *,
        too_slow: frozenset[tuple[str, str]] = frozenset(),
        no_excuse: frozenset[tuple[str, str]] = NO_EXCUSE,
    ) -> None:
        """Faults, each with its form: `too_slow` are an excuse on however few nodes, `no_excuse` on none."""
        self._too_slow, self._no_excuse = too_slow, no_excuse
        self.machine = machine or Machine(())
        self._spare = min((nodes - 1) // 2, LOST_MAX)
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._away: Counter[int] = Counter()
        self._hindered = (
            0  # faults that, each alone, hinder too many, or leave no two that hear each other
        )
        # At one moment those that begin come first: nodes of two faults that meet are away together.
        moments = []
        for at, fault in enumerate(faults):
            moments.append((float(fault["at_s"]), False, at, fault))
            moments.append((until_of(fault, healed_s), True, at, fault))
        for at_s, is_end, _, fault in sorted(moments, key=lambda each: each[:3]):
            self._count(fault, -1 if is_end else 1)
            self._turn(at_s)
        if len(self._ends) < len(self._begins):
            self._ends.append(NEVER)

    def _count(self, fault: Mapping[str, Any], step: int) -> None:
        kind, nodes = str(fault.get("fault")), set(fault.get("nodes") or ())
        form = form_of(fault)
        if form == RING or (kind, form) in self._too_slow:
            self._hindered += step
        elif kind in HINDERS:
            self._hindered += step * (len(nodes) > self._spare)
        elif kind not in HARMLESS and (kind, form) not in self._no_excuse:
            for node in {ANYBODY} if kind in ONE_BY_ONE and nodes else nodes:
                self._away[node] += step

    def _turn(self, at_s: float) -> None:
        away = sum(count > 0 for count in self._away.values())
        too_many = away > self._spare or self._hindered > 0
        if too_many and len(self._begins) == len(self._ends):
            self._begins.append(at_s)
        elif not too_many and len(self._begins) > len(self._ends):
            self._ends.append(at_s)

    def over(self, at_s: float) -> float:
        """This moment, or when enough are there again."""
        at = bisect_right(self._begins, at_s) - 1
        return max(at_s, self._ends[at]) if at >= 0 else at_s

    def due(self, from_s: float, within_s: float = AVAILABLE_S) -> float:
        """When everybody must have been served: `within_s` of the machine's own time later, without what is excused and
        what it takes to settle after it."""
        settle_s = min(SETTLE_S, within_s)
        left_s, at_s = within_s - settle_s, from_s
        while at_s < NEVER and within_s < NEVER:
            settled_s, next_s = self.machine.later(at_s, settle_s), self.next_after(at_s)
            had_s = self.machine.between(settled_s, next_s) if next_s < NEVER else NEVER
            if had_s >= left_s:
                return self.machine.later(settled_s, left_s)
            left_s -= max(0.0, had_s)
            at_s = self.over(next_s)
        return NEVER

    def owed_between(self, from_s: float, to_s: float) -> float:
        """How much of it is not excused."""
        first = bisect_right(self._begins, from_s)
        later = zip(self._begins[first:], self._ends[first:], strict=True)
        within = takewhile(lambda each: each[0] < to_s, later)
        return to_s - from_s - sum(min(end, to_s) - begin for begin, end in within)

    def next_after(self, at_s: float) -> float:
        """When too many are away the next time."""
        at = bisect_right(self._begins, at_s)
        return self._begins[at] if at < len(self._begins) else NEVER
