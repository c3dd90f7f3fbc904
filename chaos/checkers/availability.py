"""Who loses a minority is served all the same, and soon; how soon is measured where it counts: at the client's acknowledgement.

INVARIANT  each key that somebody tries to write to acknowledges within `AVAILABLE_S`: from the beginning of a fault that leaves
           a majority, whether it is over by then or not; from the end of every fault; and when all are over. Where nobody
           tries any more because nobody is served, that is told too.
PREVENTS   a run that is valid because nothing was served while it was hard, or ever again.
PROVED BY  tests/chaos/test_queue_availability.py::test_a_key_that_acknowledges_nothing_while_one_of_three_is_away_is_unavailable

While too many are away (`away.py`) nothing is owed, and that time is no part of what recovery took. A fault counts as over
when all of its nodes served again. One with a key that was never served again has no time of recovery, and is counted.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .away import AVAILABLE_S, NEVER, Excused, until_of, whole_faults
from .history import Anomaly
from .txn_history import Txn

TRIED_S: Final = 20.0  # who begins later than this had less than 10 s, which is no question
LONGEST_S: Final = 300.0  # no operation lasts longer
# A client that changed its mind, or was killed, says nothing of brokers; unless it had waited so long.
ON_PURPOSE: Final = "aborted on purpose"
NO_END: Final = "no end was written down"
OWN_S: Final = 10.0
LIVELY: Final = 10  # acknowledgements in some `AVAILABLE_S`: then silence means something
# Faults that take nodes away, and are lived with as long as they leave a majority.
TAKES_AWAY: Final = frozenset({"kill", "pause", "cut", "restart", "power", "hunt"})
NOT_SERVED: Final = "not served"  # beside the times: faults with a key that was never served again


@dataclass(slots=True)
class Recovery:
    """What came of acknowledgements from one moment on: by key, when somebody tried and when one came."""

    from_s: float
    what: str
    asked: bool = False  # it must have come in time
    measured: bool = False  # a fault's own: its time is told
    due_s: float = NEVER
    tried: dict[str, int] = field(default_factory=dict)  # key -> line of the first try
    served_s: dict[str, float] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """Nobody was served in time, whichever key."""
        return min(self.served_s.values(), default=NEVER) > self.due_s

    def counts(self, op: Txn) -> bool:
        """Whether brokers had a fair chance to serve it, and it proves nothing to the contrary."""
        if op.began_s < self.from_s and op.type == "ok" and op.ended_s <= self.due_s:
            return False  # an answer to what was sent before
        waited_s = op.ended_s - max(op.began_s, self.from_s)
        return op.why not in (ON_PURPOSE, NO_END) or waited_s >= OWN_S


class Availability:
    """`see` all operations in the order of their ends. `healed_s` is when all faults were over, where that is known."""

    def __init__(
        self, faults: Iterable[Mapping[str, Any]], nodes: int, healed_s: float | None = None
    ) -> None:
        known = whole_faults(faults)
        self._excused = excused = Excused(known, nodes, healed_s)
        found = [each for fault in known for each in _questions(fault, excused, healed_s)]
        if healed_s is not None:
            found.append(Recovery(healed_s, "all faults were over", asked=True))
        for each in found:
            each.due_s = excused.due(each.from_s)
        self.recoveries = sorted(found, key=lambda each: each.from_s)
        self._froms = [each.from_s for each in self.recoveries]
        self._unserved: dict[str, int] = {}  # key -> the first that it was not served after yet
        self._last_s: dict[str, float] = {}  # key -> when somebody was last at it
        self._acked: Counter[int] = Counter()  # by stretch of `AVAILABLE_S`
        self._end_s = 0.0

    def see(self, op: Txn) -> None:
        if not op.sends:
            return
        self._end_s = max(self._end_s, op.ended_s)
        first = bisect_left(self._froms, op.began_s - TRIED_S)
        during = self.recoveries[first : bisect_right(self._froms, op.ended_s)]
        in_vain = self._excused.over(op.began_s) >= op.ended_s
        tried = [] if in_vain else [each for each in during if each.counts(op)]
        for key in {sent.key for sent in op.sends}:
            self._last_s[key] = max(self._last_s.get(key, 0.0), op.ended_s)
            if op.type == "ok":
                self._serve(key, op)
            for each in tried:
                each.tried.setdefault(key, op.line)
        if op.type == "ok":
            self._acked[int(op.ended_s // AVAILABLE_S)] += 1

    def _serve(self, key: str, op: Txn) -> None:
        """The first that ends is the first that counts for all that came before it began."""
        first = self._unserved.get(key)
        if first is None:
            first = bisect_left(self._froms, op.began_s - LONGEST_S)
        behind = bisect_right(self._froms, op.began_s)
        for each in self.recoveries[first:behind]:
            each.served_s[key] = op.ended_s
        self._unserved[key] = max(first, behind)

    @property
    def all_served(self) -> bool:
        """Everybody who tried, of every moment, and somebody at the last one."""
        last = self.recoveries[-1].tried if self.recoveries else {}
        return bool(last) and all(
            key in each.served_s for each in self.recoveries for key in each.tried
        )

    # -- what must not be --------------------------------------------------------------------------

    def anomalies(self, end_s: float) -> list[Anomaly]:
        """`end_s` is when the clients were stopped: who had no time is not asked."""
        found = []
        for each in self.recoveries:
            if not each.asked or each.due_s > end_s:
                continue
            what = f"was acknowledged from {each.from_s:.1f} s to {each.due_s:.1f} s: {each.what}"
            for key, line in self._wanted(each):
                if each.served_s.get(key, NEVER) > each.due_s:
                    found.append(Anomaly("unavailable", key, f"nothing {what}", (line,)))
            if each.silent and not each.tried and max(self._acked.values(), default=0) >= LIVELY:
                what = f"nothing at all {what}; and nobody tried"
                found.append(Anomaly("unavailable", "all", what))
        return found

    def _wanted(self, of: Recovery) -> list[tuple[str, int]]:
        """Without keys that nobody wanted any more when the time was over, though others were served."""
        return [
            (key, line)
            for key, line in sorted(of.tried.items())
            if of.silent or self._last_s[key] >= of.due_s or key in of.served_s
        ]

    # -- how long it took --------------------------------------------------------------------------

    def recovery_ms(self, end_s: float | None = None) -> dict[str, float]:
        """Over faults, each with its slowest key; of those that nothing was acknowledged after, their number."""
        took, not_served = [], 0
        end_s = self._end_s if end_s is None else end_s
        for each in self.recoveries:
            had_time = each.due_s <= end_s
            tried = [key for key, _ in self._wanted(each)] if had_time else [*each.tried]
            if not each.measured or not tried:
                continue
            served_s = max(each.served_s.get(key, NEVER) for key in tried)
            if served_s < NEVER:
                took.append(self._excused.owed_between(each.from_s, served_s))
            else:
                not_served += had_time
        return _figures(sorted(took), not_served)


def _questions(
    fault: Mapping[str, Any], excused: Excused, healed_s: float | None
) -> list[Recovery]:
    """From its beginning, if it leaves a majority, and from its end. Measured from where something is owed."""
    begins_s, ends_s = float(fault["at_s"]), until_of(fault, healed_s)
    owed_s, after_s = excused.over(begins_s), excused.over(ends_s)
    takes_away = str(fault.get("fault")) in TAKES_AWAY
    what = str(fault.get("what", ""))
    found = [Recovery(owed_s, what, asked=takes_away or owed_s >= ends_s, measured=True)]
    if after_s > owed_s:
        found.append(Recovery(after_s, f"the end of: {what}", asked=True))
    return [each for each in found if each.from_s < NEVER]


def _figures(took: list[float], not_served: int) -> dict[str, float]:
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {
        name: round(1_000 * took[min(len(took) - 1, int(share * len(took)))], 1)
        for name, share in places.items()
        if took
    }
    return found | {NOT_SERVED: not_served} if took or not_served else {}
