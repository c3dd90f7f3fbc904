"""Which faults strike when: each has a number, and a source of chance of its own for its time, its kind and its dice.

INVARIANT  what a fault does follows from the seed and its number alone, and from what it finds.
PREVENTS   a run that becomes another one as soon as one of its faults is left out: nothing could be shrunk.
PROVED BY  tests/chaos/test_schedule.py::test_a_fault_that_is_left_out_changes_no_other
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from .plan import Plan
from .world import World

# The dice of the fault whose code is running.
DICE: Final[ContextVar[random.Random | None]] = ContextVar("dice", default=None)


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was injected."""

    number: int
    name: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.number} {self.name} at {self.at_s:.3f} s"


@dataclass(frozen=True, slots=True)
class Strike:
    number: int
    name: str
    rng: random.Random


class Schedule:
    """`begin`, then `await next()` until it is None; faults that the plan leaves out are passed by."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        names: Sequence[str],
        *,
        pause: Callable[[random.Random], float],
    ) -> None:
        """`pause` draws the time between the beginnings of two faults."""
        self.struck: list[Struck] = []
        self._world = world
        self._plan = plan
        self._names = list(plan.faults or names)
        self._pause = pause
        self._number = 0
        self._at_s = self._end_s = 0.0

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    def begin(self, seconds: float) -> None:
        """From now on, for so many seconds unless the plan says otherwise."""
        self._at_s = self._now
        self._end_s = self._plan.until_s or self._at_s + (self._plan.seconds or seconds)

    async def next(self) -> Strike | None:
        """Waits for its time; None when the time for faults is over."""
        while True:
            self._number += 1
            rng = self._world.stream(f"fault/{self._number}")
            self._at_s += self._pause(rng)
            name = rng.choice(self._names)
            if self._at_s >= self._end_s or self._now >= self._end_s:
                await asyncio.sleep(max(0.0, self._end_s - self._now))
                return None
            if self._plan.keeps(self._number):
                await asyncio.sleep(max(0.0, self._at_s - self._now))
                return Strike(self._number, name, rng)

    def strikes(self, strike: Strike) -> None:
        """It is injected now."""
        self.struck.append(Struck(strike.number, strike.name, self._now))
        self._world.trace.event("chaos", strike.name, number=strike.number)
