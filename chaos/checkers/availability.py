"""Who loses a minority is served all the same, and soon; how soon is measured where it counts: at the client's acknowledgement.

INVARIANT  from the beginning of a fault that leaves a majority, each key that somebody tries to write to acknowledges within
           `AVAILABLE_S`, whether the fault is over by then or not.
PREVENTS   a run that is valid because nothing was served while it was hard.
PROVED BY  tests/chaos/test_queue_availability.py::test_a_key_that_acknowledges_nothing_while_one_of_three_is_away_is_unavailable

Faults that take more than a minority are asked for nothing while they last; what is measured then begins when they have ended.
A fault counts as over when all of its nodes served again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .history import Anomaly
from .txn_history import Txn

AVAILABLE_S: Final = (
    30.0  # with a transaction of a dead client that has to time out first, on a busy machine
)
LOOK_S: Final = 60.0  # after the last moment that counts, a fault is looked at no more
# Faults during which nodes of theirs are away, or may be for others.
TAKES_AWAY: Final = frozenset({"kill", "pause", "cut", "restart", "power"})
ONE_BY_ONE: Final = frozenset({"restart"})  # the next goes when the one before it serves


@dataclass(slots=True)
class Recovery:
    """What a fault did to acknowledgements: by key, when somebody first tried after it and when one came."""

    fault: str
    from_s: float
    tolerated: bool
    what: str
    tried: dict[str, int] = field(default_factory=dict)  # key -> line of the first try
    served_s: dict[str, float] = field(default_factory=dict)
    began_last_s: float = 0.0

    @property
    def took_s(self) -> float | None:
        """Until every key that was tried had acknowledged; None when one never did."""
        if not self.tried or any(key not in self.served_s for key in self.tried):
            return None
        return max(self.served_s[key] for key in self.tried) - self.from_s


def whole_faults(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each fault the last line."""
    found = {str(line.get("id")): dict(line) for line in lines if "at_s" in line}
    return sorted(found.values(), key=lambda line: float(line["at_s"]))


class Availability:
    """`see` all operations in the order of their ends."""

    def __init__(self, faults: Iterable[Mapping[str, Any]], nodes: int) -> None:
        known = whole_faults(faults)
        self.recoveries = [self._recovery(fault, known, nodes) for fault in known]
        self._first = 0  # those before are looked at no more

    @staticmethod
    def _recovery(fault: Mapping[str, Any], others: list[dict[str, Any]], nodes: int) -> Recovery:
        away = set(fault.get("nodes") or ())
        if fault.get("fault") in ONE_BY_ONE:
            away = set(sorted(away)[:1])
        for other in others:
            if other is not fault and _overlap(fault, other):
                away |= set(other.get("nodes") or ())
        tolerated = len(away) * 2 < nodes
        until_s = fault.get("until_s")
        kind = str(fault.get("fault"))
        begins = float(fault["at_s"])
        if not tolerated:
            begins = float("inf") if until_s is None else float(until_s)
        asked = tolerated and kind in TAKES_AWAY
        return Recovery(kind, begins, asked, str(fault.get("what", "")))

    def see(self, op: Txn) -> None:
        if not op.sends:
            return
        while self._first < len(self.recoveries) and self._is_past(self._first, op):
            self._first += 1
        for recovery in self.recoveries[self._first :]:
            if not recovery.from_s <= op.began_s <= recovery.from_s + AVAILABLE_S:
                continue
            for sent in op.sends:
                recovery.tried.setdefault(sent.key, op.line)
                if op.type == "ok":
                    before = recovery.served_s.get(sent.key, float("inf"))
                    recovery.served_s[sent.key] = min(before, op.ended_s)

    def _is_past(self, at: int, op: Txn) -> bool:
        return op.ended_s > self.recoveries[at].from_s + AVAILABLE_S + LOOK_S

    def anomalies(self, end_s: float) -> list[Anomaly]:
        """`end_s` is when the clients were stopped: who had no time is not asked."""
        found = []
        for each in self.recoveries:
            if not each.tolerated or each.from_s + AVAILABLE_S > end_s:
                continue
            for key, line in sorted(each.tried.items()):
                took_s = each.served_s.get(key, float("inf")) - each.from_s
                if took_s > AVAILABLE_S:
                    what = f"nothing was acknowledged for {AVAILABLE_S:g} s after {each.from_s:.1f} s: {each.what}"
                    found.append(Anomaly("unavailable", key, what, (line,)))
        return found

    def recovery_ms(self) -> dict[str, float]:
        """Over faults, each with its slowest key."""
        took = sorted(each.took_s for each in self.recoveries if each.took_s is not None)
        if not took:
            return {}
        places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return {
            name: round(1_000 * took[min(len(took) - 1, int(share * len(took)))], 1)
            for name, share in places.items()
        }


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def until(fault: Mapping[str, Any]) -> float:
        until_s = fault.get("until_s")
        return float("inf") if until_s is None else float(until_s)

    return float(other["at_s"]) <= until(one) and float(one["at_s"]) <= until(other)
