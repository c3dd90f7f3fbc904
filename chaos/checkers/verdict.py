"""All checkers over one history: valid or not, with counts and the first anomalies of each kind.

By hand: `python -m fencepost.chaos.checkers.verdict < history.jsonl`.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from . import dead_clients, duplicates, lost_writes, order, skipped
from .history import FINAL, OPEN, Anomaly, History, from_lines, reads

CHECKERS: Final[tuple[Callable[[History], list[Anomaly]], ...]] = (
    lost_writes.check,
    duplicates.check,
    order.check,
    skipped.check,
    dead_clients.check,
)
# What can be said of a history that has not come to its end.
OF_OPEN: Final[tuple[Callable[[History], list[Anomaly]], ...]] = (order.check, dead_clients.check)
SHOWN_PER_RULE: Final = 5
MEANWHILE: Final = "read meanwhile"  # by whoever read before the pass after all faults


@dataclass(frozen=True, slots=True)
class Verdict:
    """`valid` is true only of a history in which something was acknowledged and read at the end, or read meanwhile where nothing is
    left to read."""

    anomalies: tuple[Anomaly, ...]
    counts: dict[str, int] = field(default_factory=dict)
    all_deleted: bool = False  # so that the last pass found nothing

    @property
    def proves_something(self) -> bool:
        read = self.counts[MEANWHILE if self.all_deleted else "read at the end"]
        return self.counts["acknowledged"] > 0 and read > 0

    @property
    def valid(self) -> bool:
        return not self.anomalies and self.proves_something

    @property
    def told(self) -> str:
        """All but the last word."""
        lines = [f"{name:>18}  {count}" for name, count in self.counts.items()]
        by_rule = Counter(anomaly.rule for anomaly in self.anomalies)
        for rule, count in sorted(by_rule.items()):
            lines.append(f"{rule:>18}  {count}")
            shown = [anomaly for anomaly in self.anomalies if anomaly.rule == rule]
            lines += [f"{'':>20}{anomaly}" for anomaly in shown[:SHOWN_PER_RULE]]
        if self.all_deleted:
            lines.append("all that was acknowledged was deleted before the end")
        if not self.proves_something:
            lines.append("nothing was acknowledged or nothing read: this proves nothing")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.told}\n{'VALID' if self.valid else 'INVALID'}"


def judge(history: History) -> Verdict:
    kinds = Counter(op.type for op in history if op.f == "send")
    counts = {
        "acknowledged": kinds["ok"],
        "failed": kinds["fail"],
        "unknown": kinds["info"],
        MEANWHILE: sum(1 for op in reads(history) if op.process != FINAL),
        "read at the end": sum(1 for _ in reads(history, FINAL)),
    }
    checkers = OF_OPEN if any(op.f == OPEN for op in history) else CHECKERS
    anomalies = [anomaly for check in checkers for anomaly in check(history)]
    found_nothing = counts["acknowledged"] > 0 and not counts["read at the end"]
    all_deleted = found_nothing and lost_writes.all_deleted(history)
    return Verdict(tuple(anomalies), counts, all_deleted)


def main() -> None:
    verdict = judge(from_lines(sys.stdin))
    sys.stdout.write(f"{verdict}\n")
    sys.exit(0 if verdict.valid else 1)


if __name__ == "__main__":
    main()
