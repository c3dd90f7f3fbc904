"""Who loses a minority is served all the same, and soon; how soon is measured where it counts: at the client's acknowledgement.

INVARIANT  each key that somebody tries to write to acknowledges while a fault that leaves a majority goes on, as soon as the system
           promises (`promised.py`); of one that is over sooner, within `AVAILABLE_S` of its beginning; and so after the end
           of every fault, and when all are over. Where nobody tries any more because nobody is served, that is told too.
PREVENTS   a run that is valid because nothing was served while it was hard, or ever again.
PROVED BY  tests/chaos/test_queue_promised.py::test_a_cut_of_one_of_three_in_which_nothing_is_acknowledged_is_unavailable_though_it_ends_soon,
           tests/chaos/test_queue_availability.py::test_a_key_that_acknowledges_nothing_while_one_of_three_is_away_is_unavailable

While too many are away (`away.py`) nothing is owed, and that time is no part of what recovery took. While a copy that hangs is
waited for (`promised.LAGS`) no other fault is asked about, and who tries in vain then has not been refused. A fault counts as over
when all of its nodes served again. One with a key that was never served again has no time of recovery, and is counted.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .away import AVAILABLE_S, SETTLE_S, Excused, until_of, whole_faults
from .busy import Machine
from .history import Anomaly
from .promised import NEVER, OPEN_S, TOO_SLOW, WAITS, Promise, is_waited_for
from .txn_history import LIFE, Txn

TRIED_S: Final = 20.0  # who begins later than this had less than 10 s, which is no question
LONGEST_S: Final = 300.0  # no operation lasts longer
# A client that changed its mind, slept, or was killed, says nothing of brokers; unless it had waited so long for them.
ON_PURPOSE: Final = "aborted on purpose"
NO_END: Final = "no end was written down"
OWN_S: Final = 10.0
LIVELY: Final = 10  # acknowledgements in as much time: then silence means something
WANTED_SHARE: Final = 0.5  # of a question's time, from its first try to its last: else it is none
NOT_SERVED: Final = "not served"  # beside the times: faults with a key that was never served again


@dataclass(slots=True)
class Recovery:
    """What came of acknowledgements from one moment on: by key, when somebody tried and when one came."""

    from_s: float
    what: str
    asked: bool = False  # it must have come in time
    measured: bool = False  # a fault's own: its time is told
    due_s: float = NEVER
    during: bool = False  # the fault still goes on when the time is over
    tried: dict[str, int] = field(default_factory=dict)  # key -> line of the first try
    wanted_s: dict[str, tuple[float, float]] = field(default_factory=dict)  # first try, last one
    served_s: dict[str, float] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # keys of whose tries one had a fair chance
    is_settled: bool = False

    @property
    def silent(self) -> bool:
        """Nobody was served in time, whichever key."""
        return min(self.served_s.values(), default=NEVER) > self.due_s

    def counts(self, op: Txn) -> bool:
        """Whether brokers had a fair chance to serve it, and it proves nothing to the contrary."""
        waited_s = op.ended_s - max(op.began_s, self.from_s) - op.slept_s
        if op.began_s < self.from_s:
            if op.type == "ok" and op.ended_s <= self.due_s:
                return False  # an answer to what was sent before
            # It waits for a node that was there when it asked, is fenced meanwhile, and begins anew: that is its try.
            return waited_s >= min(OWN_S, self.due_s - self.from_s)
        return not _is_its_own(op) or waited_s >= OWN_S

    def tried_by(self, op: Txn, key: str) -> None:
        self.tried.setdefault(key, op.line)
        first_s, last_s = self.wanted_s.get(key, (max(op.began_s, self.from_s), 0.0))
        self.wanted_s[key] = first_s, max(last_s, min(op.ended_s, self.due_s))

    def settle(self) -> None:
        """No more tries: of the keys that were served in time the slowest is enough, of others the first."""
        self.is_settled = True
        in_time = {key: at for key, at in self.served_s.items() if at <= self.due_s}
        slowest = max(
            (key for key in self.tried if key in in_time), key=in_time.__getitem__, default=None
        )
        first = min(self.served_s, key=self.served_s.__getitem__, default=None)
        self.tried = {
            key: line for key, line in self.tried.items() if key not in in_time or key == slowest
        }
        self.wanted_s = {key: self.wanted_s[key] for key in self.tried}
        self.served_s = {
            key: at for key, at in self.served_s.items() if key in self.tried or key == first
        }

    def was_wanted(self, key: str) -> bool:
        """For so long that it would have been served: a load of few operations leaves keys alone for seconds."""
        first_s, last_s = self.wanted_s[key]
        return last_s - first_s >= WANTED_SHARE * (self.due_s - self.from_s)


class Availability:
    """`see` all operations in the order of their ends. `healed_s` is when all faults were over, where that is known."""

    def __init__(
        self,
        faults: Iterable[Mapping[str, Any]],
        nodes: int,
        healed_s: float | None = None,
        *,
        promise: Promise | None = None,
        machine: Machine | None = None,
    ) -> None:
        known = whole_faults(faults)
        self.excused = excused = Excused(known, nodes, healed_s, machine)
        # A transaction that lasts as long as it may, and its end after that, are behind the one node that is too slow for them.
        self.excused_for_readers = Excused(known, nodes, healed_s, machine, too_slow=TOO_SLOW)
        slowed = Excused(known, nodes, healed_s, machine, no_excuse=frozenset())
        promise = promise or Promise()
        waits = [*known, *promise.waits(known, healed_s)]
        self.waiting = Excused(waits, nodes, healed_s, machine, too_slow=frozenset({WAITS}))
        asking = Asking(excused, promise, healed_s, slowed, self.waiting)
        found = [each for fault in known for each in asking.of(fault)]
        if healed_s is not None:
            due_s = excused.due(healed_s)
            found.append(Recovery(healed_s, "all faults were over", asked=True, due_s=due_s))
        self.recoveries = sorted(found, key=lambda each: each.from_s)
        self._froms = [each.from_s for each in self.recoveries]
        self._lasting = [each for each in self.recoveries if each.during]
        self._open = self.recoveries  # without those that are settled
        self._unserved: dict[str, int] = {}  # key -> the first that it was not served after yet
        self._last_s: dict[str, float] = {}  # key -> when somebody was last at it
        self._acked: Counter[int] = Counter()  # by stretch of `AVAILABLE_S`
        self._end_s = self._swept_s = 0.0

    def see(self, op: Txn) -> None:
        keys = {sent.key for sent in op.sends if LIFE not in sent.key}
        if not keys or (op.type != "ok" and _touches_what_goes(op)):
            return
        self._end_s = max(self._end_s, op.ended_s)
        for key in keys:
            # What an operation did before, to poll for example, was no try of this key.
            sent_s = op.sent_s.get(key, op.began_s)
            self._see(key, replace(op, began_s=sent_s) if sent_s > op.began_s else op)
        if op.type == "ok":
            self._acked[int(op.ended_s // AVAILABLE_S)] += 1
        if op.ended_s >= self._swept_s + LONGEST_S:
            self._sweep(op.ended_s)

    def _see(self, key: str, op: Txn) -> None:
        self._last_s[key] = max(self._last_s.get(key, 0.0), op.ended_s)
        if op.type == "ok":
            self._serve(key, op)
        if self.excused.over(op.began_s) >= op.ended_s:
            return  # in vain
        for each in self._under_way(op):
            if each.counts(op):
                each.tried_by(op, key)
                # Not when all of it was behind a copy that hung: it was waited for, as is promised.
                if each.during or self.waiting.over(max(op.began_s, each.from_s)) < op.ended_s:
                    each.refused.add(key)

    def _sweep(self, now_s: float) -> None:
        """What is held of a question by key is held while it is open: a long history has thousands, each of many keys."""
        self._swept_s = now_s
        last_s = now_s - LONGEST_S
        for each in self._open:
            if max(each.from_s + TRIED_S, each.due_s) < last_s:
                each.settle()
        self._open = [each for each in self._open if not each.is_settled]

    def _under_way(self, op: Txn) -> list[Recovery]:
        """Questions that this operation is a try of."""
        first = bisect_left(self._froms, op.began_s - TRIED_S)
        young = self.recoveries[first : bisect_right(self._froms, op.ended_s)]
        found = [each for each in young if not each.during and not each.is_settled]
        while self._lasting and self._lasting[0].due_s < op.ended_s - LONGEST_S:
            self._lasting.pop(0)
        for each in self._lasting:
            if each.from_s > op.ended_s:
                break
            if op.began_s <= each.due_s and not each.is_settled:
                found.append(each)
        return found

    def _serve(self, key: str, op: Txn) -> None:
        """The first that ends is the first that counts for all that came before it began."""
        first = self._unserved.get(key)
        if first is None:
            first = bisect_left(self._froms, op.began_s - LONGEST_S)
        behind = bisect_right(self._froms, op.began_s)
        for each in self.recoveries[first:behind]:
            if not each.is_settled or key in each.tried:
                each.served_s[key] = op.ended_s
        self._unserved[key] = max(first, behind)

    @property
    def all_served(self) -> bool:
        """Everybody who tried, of every moment, and somebody at the last one."""
        last = self.recoveries[-1].tried if self.recoveries else {}
        return bool(last) and all(
            key in each.served_s for each in self.recoveries for key in each.tried
        )

    def asked_meanwhile(self, end_s: float) -> int:
        """Of how many faults it was asked while they went on: on a busy machine few last long enough."""
        return sum(each.during and each.due_s <= end_s for each in self.recoveries)

    # -- what must not be --------------------------------------------------------------------------

    def anomalies(self, end_s: float) -> list[Anomaly]:
        """`end_s` is when the clients were stopped: who had no time is not asked."""
        found = []
        told: set[tuple[float, str]] = set()  # of the questions of one moment the longest is enough
        for each in self.recoveries:
            if not each.asked or each.due_s > end_s:
                continue
            until = (
                f"{each.due_s:.1f} s, while it went on" if each.during else f"{each.due_s:.1f} s"
            )
            what = f"was acknowledged from {each.from_s:.1f} s to {until}: {each.what}"
            for key, line in self._wanted(each):
                is_late = each.served_s.get(key, NEVER) > each.due_s
                if is_late and key in each.refused and (each.from_s, key) not in told:
                    told.add((each.from_s, key))
                    found.append(Anomaly("unavailable", key, f"nothing {what}", (line,)))
            is_told = (each.from_s, "all") in told
            if each.silent and not each.tried and not is_told and self._is_lively(each):
                told.add((each.from_s, "all"))
                what = f"nothing at all {what}; and nobody tried"
                found.append(Anomaly("unavailable", "all", what))
        return found

    def unanswered(self, end_s: float) -> list[str]:
        """What was wanted after all faults, and not served, though the load ended before it had to be: a busy machine takes longer."""
        last = self.recoveries[-1] if self.recoveries else None
        if last is None or not last.asked or last.due_s <= end_s:
            return []
        until = f"from {last.from_s:.1f} s to {end_s:.1f} s, after {last.what}: the load ended before it was asked for"
        least_s = WANTED_SHARE * (end_s - last.from_s)
        found = [
            f"nothing of {key} was acknowledged {until}"
            for key, (first_s, last_s) in sorted(last.wanted_s.items())
            if key not in last.served_s and min(last_s, end_s) - first_s >= least_s
        ]
        if not last.served_s and not last.tried and self._is_lively(last):
            found.append(f"nothing at all was acknowledged {until}")
        return found

    def _is_lively(self, of: Recovery) -> bool:
        share = (of.due_s - of.from_s) / AVAILABLE_S if of.during else 1.0
        return max(self._acked.values(), default=0) * share >= LIVELY

    def _wanted(self, of: Recovery) -> list[tuple[str, int]]:
        """Without keys that nobody wanted any more when the time was over, though others were served."""
        return [
            (key, line)
            for key, line in sorted(of.tried.items())
            if (of.silent or self._last_s[key] >= of.due_s or key in of.served_s)
            and (not of.during or of.was_wanted(key))
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
                took.append(self.excused.owed_between(each.from_s, served_s))
            else:
                not_served += had_time
        return _figures(sorted(took), not_served)


def _is_its_own(op: Txn) -> bool:
    """It took as long, or ended, as its client, or who killed that, would have it: somebody was told so, perhaps, and nobody
    was refused but who slept for longer than its transaction may last."""
    return op.slept_s > 0 or op.why == NO_END or op.why.startswith(ON_PURPOSE)


def _touches_what_goes(op: Txn) -> bool:
    """Of a topic that somebody deletes nothing is owed in time, nor of what stands or falls with it."""
    return any(LIFE in sent.key for sent in op.sends)


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked of a fault: from its beginning, if it leaves a majority, and from its end. Measured from where something
    is owed."""

    excused: Excused
    promise: Promise
    healed_s: float | None
    slowed: Excused  # and when too many were away, if who is slower by milliseconds were
    waiting: Excused  # and when a copy that hangs is waited for, too

    def of(self, fault: Mapping[str, Any]) -> list[Recovery]:
        begins_s, ends_s = float(fault["at_s"]), until_of(fault, self.healed_s)
        owed_s, after_s = self.excused.over(begins_s), self.excused.over(ends_s)
        what = str(fault.get("what", ""))
        found = self._from_its_beginning(fault, what, owed_s, ends_s)
        if after_s > owed_s:
            due_s = self.waiting.due(self.waiting.over(after_s))
            found.append(Recovery(after_s, f"the end of: {what}", asked=True, due_s=due_s))
        return [each for each in found if each.from_s < NEVER]

    def _from_its_beginning(
        self, fault: Mapping[str, Any], what: str, owed_s: float, ends_s: float
    ) -> list[Recovery]:
        """While it goes on, if it lasts so long; and within `AVAILABLE_S`, where as much is promised before its end."""
        promised_s = self.promise.within_s(fault)
        until_s = min(owed_s + promised_s, self.excused.next_after(owed_s))
        if self.slowed.over(owed_s) > owed_s or self.slowed.next_after(owed_s) < until_s:
            promised_s += OPEN_S  # with such disks a transaction takes seconds, and may
        due_s = self.excused.due(owed_s)
        is_asked = promised_s <= AVAILABLE_S or due_s >= ends_s
        is_asked = is_asked and (promised_s < NEVER or owed_s >= ends_s)
        due_s = max(due_s, self._due_behind_others(fault, owed_s, ends_s))
        found = [Recovery(owed_s, what, asked=is_asked, measured=True, due_s=due_s)]
        due_s = self.excused.due(owed_s, promised_s)
        if not is_waited_for(fault):
            due_s = max(due_s, self.waiting.due(self.waiting.over(owed_s), promised_s))
        if owed_s < ends_s and due_s <= ends_s:
            found.append(Recovery(owed_s, what, asked=True, due_s=due_s, during=True))
        return found

    def _due_behind_others(self, fault: Mapping[str, Any], owed_s: float, ends_s: float) -> float:
        """As `Excused.due`, without the time in which copies that hang are waited for; but its own counts."""
        if not is_waited_for(fault):
            return self.waiting.due(self.waiting.over(owed_s))
        own_s = max(owed_s, min(ends_s, float(fault["at_s"]) + self.promise.lag_s))
        left_s = AVAILABLE_S - self.excused.machine.between(owed_s, own_s)
        return self.waiting.due(own_s, max(SETTLE_S, left_s))


def _figures(took: list[float], not_served: int) -> dict[str, float]:
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {
        name: round(1_000 * took[min(len(took) - 1, int(share * len(took)))], 1)
        for name, share in places.items()
        if took
    }
    return found | {NOT_SERVED: not_served} if took or not_served else {}
