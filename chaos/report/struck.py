"""How often each kind of fault has struck each target: in the record, and since this session began.

INVARIANT  whatever struck least comes first; what was asked for and could not strike waits its turn like all others.
PREVENTS   a record of hours in which power was never lost, since the dice fell elsewhere; and one kind that can't strike
           keeping its place before all others for ever.
PROVED BY  tests/chaos/test_report_rounds.py::test_an_hour_of_rounds_has_every_fault_on_processes
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence

from ..runs.plan_words import WORKLOADS
from .digest import Digest


class Struck:
    def __init__(self, runs: Iterable[Digest] = ()) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # by target and kind
        self._asked: Counter[tuple[str, str]] = Counter()  # in this session, and not looked at yet
        for run in runs:
            self.add(run)

    def add(self, run: Digest) -> None:
        """The older loops have names of their own for what they do."""
        if run.workload in WORKLOADS:
            for name, times in run.struck.items():
                self.counts[run.target, name] += times

    def ask(self, target: str, names: Iterable[str]) -> None:
        """They are going to be asked for: that counts as once, whatever comes of it."""
        for name in names:
            self._asked[target, name] += 1

    def of(self, targets: Iterable[str], name: str) -> int:
        """On whichever of these it struck least."""
        return min(self.counts[target, name] + self._asked[target, name] for target in targets)

    def least(
        self, rng: random.Random, targets: Sequence[str], names: Sequence[str], few: int
    ) -> list[str]:
        """So many of them, who struck least first; among equals dice decide."""
        dealt = rng.sample(list(names), len(names))
        return sorted(dealt, key=lambda name: self.of(targets, name))[:few]
