"""All rules over one history of the queue workload, by Jepsen's names: what must not be, what is told and allowed, what was counted.

By hand: `python -m fencepost.chaos.checkers.queue_verdict history.jsonl`. Exit code 0 valid, 1 invalid, 2 nothing can be said.

A history that is short is held in memory, by the plain checkers; a long one streams (`queue_stream.py`), by the same rules.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from . import (
    aborted_reads,
    bank,
    consumed,
    cycles,
    damaged,
    dead_clients,
    polls,
    sends,
    told,
    torn_transactions,
    txn_log,
    txn_lost,
)
from .availability import Availability
from .busy import Machine
from .final_positions import FinalPositions
from .history import FINAL, Anomaly
from .promised import Promise
from .stale_reads import StaleReads
from .stuck_polls import StuckPolls
from .txn_history import Txn, Txns, WholeLines

# What is legal where records of open transactions interleave, in Kafka as in Fencepost: told, and no fault.
ALLOWED: Final = frozenset({"int-send-skip", "G0", "G0-process", "G0-realtime"})
# Of a history that is held in memory, where it takes fifteen times as much; and where its workload has rules that know no
# other way: with those it stays below 2 GiB.
HELD_BYTES_MAX: Final = 64 << 20
HELD_MORE_BYTES_MAX: Final = 128 << 20
Checker = Callable[[Txns], list[Anomaly]]
CHECKERS: Final = (
    txn_log.check,
    aborted_reads.check,
    txn_lost.check,
    torn_transactions.check,
    polls.check,
    sends.check,
    sends.skips,
    consumed.check,
    cycles.check,
    cycles.write_cycles,
    bank.check,
)


@dataclass(slots=True)
class Judged:
    """`cut` says where a history ended too early, `untold` of which positions it knows nothing, `unanswered` what was asked for
    when the load ended; else they are empty."""

    anomalies: Sequence[Anomaly] = ()
    counts: dict[str, int] = field(default_factory=dict)
    recovery_ms: dict[str, float] = field(default_factory=dict)
    cut: str = ""
    untold: str = ""
    unanswered: Sequence[str] = ()

    @property
    def fatal(self) -> list[Anomaly]:
        return [each for each in self.anomalies if each.rule not in ALLOWED]

    @property
    def proves_something(self) -> bool:
        return all(self.counts[name] > 0 for name in ("records", "records read", "read at the end"))


@dataclass(slots=True)
class Seen:
    """What is counted and looked at on the way, one operation after the other."""

    availability: Availability
    stuck_polls: StuckPolls
    stale_reads: StaleReads = field(default_factory=StaleReads)
    final_positions: FinalPositions = field(default_factory=FinalPositions)
    anomalies: list[Anomaly] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    clients_end_s: float = 0.0

    def see(self, op: Txn) -> None:
        self.availability.see(op)
        self.final_positions.see(op)
        self.anomalies += [*self.stale_reads.see(op), *damaged.seen_by(op)]
        self.anomalies += dead_clients.seen_by(op)
        self.anomalies += self.stuck_polls.see(op)
        if op.process == FINAL:
            self.kinds["read at the end"] += len(op.polls)
            return
        self.clients_end_s = max(self.clients_end_s, op.ended_s)
        self.kinds["records read"] += len(op.polls)
        if op.f in ("txn", "send", "read"):
            self.kinds["operations"] += 1
            self.kinds[op.type] += 1
            self.kinds["transactions"] += op.f == "txn"
            if op.type == "ok":
                self.kinds["records"] += len(op.sends)
        elif op.f in ("assign", "subscribe", "crash", "snapshot"):
            self.kinds[op.f] += 1

    @property
    def counts(self) -> dict[str, int]:
        always = (
            "operations",
            "ok",
            "fail",
            "info",
            "records",
            "transactions",
            "records read",
            "read at the end",
        )
        found = {name: self.kinds[name] for name in always} | dict(self.kinds)
        return found | {"ends asked": self.stale_reads.asked}


def judge(
    file: Path,
    faults: Iterable[Mapping[str, Any]] = (),
    nodes: int = 3,
    *,
    healed_s: float | None = None,
    stopped_s: float | None = None,
    promise: Promise | None = None,
    machine: Machine | None = None,
    more: Sequence[Checker] = (),
    instead: Sequence[Checker] = (),
    also: Callable[[Txn], None] = lambda _: None,
) -> Judged:
    """`healed_s` is when all faults were over, `stopped_s` when the clients were told to stop, where that is known.

    `more` rules are those of a workload that is not the queue's, `instead` those of one of which other things are owed: `also` sees
    all operations on the way.
    """
    availability = Availability(faults, nodes, healed_s, promise=promise, machine=machine)
    seen = Seen(availability, StuckPolls(availability.excused_for_readers, promise))

    def see(op: Txn) -> None:
        seen.see(op)
        also(op)

    has_own = bool(more or instead)
    if file.stat().st_size > (HELD_MORE_BYTES_MAX if has_own else HELD_BYTES_MAX):
        found, cut = _streamed(file, see, has_own=bool(instead))
        no_rules = "its workload" if has_own else "the bank" if seen.kinds["snapshot"] else ""
    else:
        found, cut = _held(file, see, instead or (*CHECKERS, *more))
        no_rules = ""
    # Of what was not read nobody can say that nothing was acknowledged in it.
    end_s = seen.clients_end_s if stopped_s is None or cut else stopped_s
    if no_rules:
        cut = cut or f"it is too long for the rules of {no_rules}, which were not looked at"
    found += [*seen.anomalies, *seen.availability.anomalies(end_s)]
    counts = seen.counts | {"asked meanwhile": seen.availability.asked_meanwhile(end_s)}
    recovery_ms = seen.availability.recovery_ms(end_s)
    unanswered = seen.availability.unanswered(end_s) + seen.stuck_polls.unanswered(healed_s, end_s)
    return Judged(found, counts, recovery_ms, cut, seen.final_positions.untold, unanswered)


def _streamed(
    file: Path, see: Callable[[Txn], None], *, has_own: bool
) -> tuple[list[Anomaly], str]:
    """By the queue's rules, unless it has its own."""
    if has_own:
        return _held(file, see, ())
    from .queue_stream import stream

    return stream(file, see)


def _held(
    file: Path, see: Callable[[Txn], None], checkers: Sequence[Checker]
) -> tuple[list[Anomaly], str]:
    history: Txns = []
    with file.open("rb") as source:
        lines = WholeLines(source)
        for op in lines:
            see(op)
            if checkers:
                history.append(op)
    history = told.resolved(history)
    return [anomaly for check in checkers for anomaly in check(history)], lines.cut


def main(arguments: Sequence[str]) -> int:
    judged = judge(Path(arguments[0]))
    lines = [f"{anomaly} {list(anomaly.operations)}" for anomaly in judged.anomalies]
    lines += [json.dumps(judged.counts), judged.cut, judged.untold, *judged.unanswered]
    whole = judged.proves_something and not (judged.cut or judged.untold or judged.unanswered)
    code = 1 if judged.fatal else 0 if whole else 2
    lines.append(("VALID", "INVALID", "UNKNOWN")[code])
    sys.stdout.write("".join(f"{line}\n" for line in lines if line))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
