"""A failing plan made smaller: fewer faults, an earlier end, fewer clients, fewer nodes. It must fail in the same way.

Faults go by delta debugging (Zeller's ddmin): halves first, then quarters, down to single ones. As each fault has dice of
its own (`sim/schedule.py`), what is left of a schedule goes on as it did.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..sim.plan import Plan
from .campaign import Outcome
from .options import HAVE_NODES

NODES_MIN: Final = 3
UNTIL_STEP_S: Final = 0.001  # behind the last fault's beginning
HOLDS_S: Final = (0.0, 0.3, 1.0, 3.0)  # how long the last fault may last
Runs = Callable[[Iterable[Plan]], Iterable[Outcome]]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest that was found, and what it took."""

    first: Outcome
    smallest: Outcome
    runs: int
    took_s: float
    gave_up: bool  # for the time

    def __str__(self) -> str:
        before, after = self.first, self.smallest
        why = ", then the time was up" if self.gave_up else ""
        return (
            f"shrunk from {len(before.struck)} faults to {len(after.struck)}, from {_clients(before)} clients to"
            f" {_clients(after)}, from {before.virtual_s:.1f} virtual seconds to {after.virtual_s:.1f}"
            f" ({self.runs} runs, {self.took_s:.0f} s{why})"
        )


def _clients(outcome: Outcome) -> int:
    return sum(len(group) for group in outcome.clients)


class Shrinker:
    def __init__(self, failed: Outcome, runs: Runs, *, seconds: float) -> None:
        self._first = self._best = failed
        self._runs = runs
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._count = 0

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._end

    def shrink(self) -> Shrunk:
        self._fewer_faults()
        self._shorter()
        self._fewer_clients()
        self._fewer_nodes()
        self._fewer_faults()
        self._shorter()
        took_s = time.monotonic() - self._began
        return Shrunk(self._first, self._best, self._count, took_s, self._is_over)

    def _try(self, candidates: Iterable[Plan]) -> bool:
        """Whether one of these fails in the same way: the first that does is the best now."""
        for outcome in self._runs(self._until_over(candidates)):
            self._count += 1
            if outcome.failure and outcome.kind == self._first.kind:
                self._best = outcome
                return True
        return False

    def _until_over(self, candidates: Iterable[Plan]) -> Iterable[Plan]:
        for each in candidates:
            if self._is_over:
                return
            yield each

    def _fewer_faults(self) -> None:
        """Ddmin."""
        parts = 2
        if not self._try([replace(self._best.plan, keep_faults=())]):
            while (kept := [each.number for each in self._best.struck]) and not self._is_over:
                parts = min(parts, len(kept))
                pieces = _pieces(kept, parts)
                smaller = pieces if len(kept) > 1 else []
                others = [[n for n in kept if n not in piece] for piece in pieces]
                plan = self._best.plan
                if self._try([replace(plan, keep_faults=tuple(each)) for each in smaller]):
                    parts = 2
                elif parts > 2 and self._try(
                    [replace(plan, keep_faults=tuple(each)) for each in others]
                ):
                    parts = max(2, parts - 1)
                elif parts >= len(kept):
                    return
                else:
                    parts *= 2

    def _shorter(self) -> None:
        """The faults end earlier: right behind the last one's beginning, or a while later."""
        last = max((each.at_s for each in self._best.struck), default=0.0)
        now = self._best.plan.until_s or self._best.virtual_s
        ends = [round(last + UNTIL_STEP_S + hold, 3) for hold in HOLDS_S]
        self._try([replace(self._best.plan, until_s=end) for end in ends if end < now])

    def _fewer_clients(self) -> None:
        for group in self._best.clients:
            kept = [name for each in self._best.clients if each != group for name in each]
            if kept and not self._is_over:
                self._try([replace(self._best.plan, keep_clients=tuple(kept))])

    def _fewer_nodes(self) -> None:
        plan = self._best.plan
        if plan.campaign in HAVE_NODES and plan.nodes != NODES_MIN:
            self._try([replace(plan, nodes=NODES_MIN)])


def _pieces(items: Sequence[int], count: int) -> list[list[int]]:
    size = -(-len(items) // count)
    return [list(items[at : at + size]) for at in range(0, len(items), size)]
