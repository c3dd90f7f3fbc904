"""What strikes when: drawn from the seed before anything begins, a source of chance of its own for each fault.

INVARIANT  number, time, kind, target and dice of each fault follow from seed, kinds and seconds alone; whatever the faults
           find. All have ended when the seconds are over. No kind comes twice before every other came once.
PREVENTS   a run that can't be repeated because one node came back a little later; a run that was asked for six kinds of
           faults, and of which two never had their turn.
PROVED BY  tests/chaos/test_faults_schedule.py::test_equal_seeds_give_equal_plans,
           tests/chaos/test_faults_schedule.py::test_no_kind_comes_twice_before_every_other_came_once
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CALM_S: Final = 2.0  # at the beginning
GAP_S: Final = (1.0, 6.0)  # from the end of a fault to the beginning of the next one
LONG_ODDS: Final = 1 / 5
LONG_SHARE: Final = 0.5  # of a run, at most
FEW: Final = frozenset({"one", "leaders", "coordinator", "controller", "minority"})


@dataclass(frozen=True, slots=True)
class Kind:
    """What the plan has to know of a fault: whom it may strike, and how long it lasts."""

    targets: Sequence[str]
    hold_s: tuple[float, float]
    long_s: tuple[float, float] | None = None
    first: bool = False  # before all others, as long as there is a choice


@dataclass(frozen=True, slots=True)
class Strike:
    number: int
    kind: str
    target: str
    at_s: float
    until_s: float
    dice: str

    def rng(self) -> random.Random:
        """Always the same."""
        return random.Random(self.dice)


def plan(kinds: Mapping[str, Kind], seed: int, seconds: float, lane: int = 0) -> list[Strike]:
    """Faults of one lane, one after the other; lanes strike beside one another."""
    found: list[Strike] = []
    at_s = CALM_S
    names = sorted(kinds)
    deck: list[str] = []
    while names:
        number = len(found) + 1
        dice = f"{seed}/{lane}/{number}"
        rng = random.Random(dice)
        at_s += rng.uniform(*GAP_S)
        deck = deck or rng.sample(names, len(names))
        if not found:
            deck.sort(key=lambda name: kinds[name].first)  # the last one is dealt first
        name = deck.pop()
        target = rng.choice(list(kinds[name].targets))
        until_s = at_s + rng.uniform(*kinds[name].hold_s)
        long_s = kinds[name].long_s
        if long_s is not None and target in FEW and rng.random() < LONG_ODDS:
            lasts_s = rng.uniform(*long_s)
            if lasts_s <= LONG_SHARE * seconds and at_s + lasts_s <= seconds:
                until_s = at_s + lasts_s
        if until_s > seconds:
            break
        found.append(Strike(number, name, target, at_s, until_s, f"{dice}/what"))
        at_s = until_s
    return found
