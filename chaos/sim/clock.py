"""A node's clocks: wall time that is off, jumps and drifts, and steady time, which goes on but may go a little too fast or slow."""

import asyncio
from collections.abc import Callable
from typing import Final

from .loop import CLOCK_RESOLUTION_S, Incarnation, SimLoop, context_of

# 2026-01-01T00:00:00Z, where every simulation starts.
WALL_START_MS: Final = 1_767_225_600_000


class WallTime:
    """Belongs to the machine: it goes on through restarts of its node."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._since = 0.0
        self._start_ms = float(WALL_START_MS)
        self._drift = 0.0

    def now_ms(self) -> int:
        return int(self._exact_ms())

    def _exact_ms(self) -> float:
        return self._start_ms + (self._loop.time() - self._since) * 1000 * (1 + self._drift)

    def jump(self, by_ms: int) -> None:
        """Somebody set the clock, forwards or back."""
        self._start_ms += by_ms

    def drift(self, ppm: float) -> None:
        """From now on the clock gains so many microseconds a second (loses, when negative)."""
        self._start_ms, self._since = self._exact_ms(), self._loop.time()
        self._drift = ppm / 1e6


class SteadyTime:
    """Belongs to the machine, too: nobody sets it, but the quartz that drives it is not that of the others."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._since = self._start = 0.0
        self._stopped: float | None = None
        self._stood_still_until = float("-inf")
        self._stood_still_s = 0.0
        self.rate = 1.0

    def now(self) -> float:
        now = self._loop.time()
        return now if self.rate == 1.0 and not self._since else self._at(now)

    def elapsed(self) -> float:
        return self.now() + self._stood_still_s

    def _at(self, now: float) -> float:
        until = now if self._stopped is None else self._stopped
        return self._start + (until - self._since) * self.rate

    def stop(self) -> None:
        """The machine is suspended as a whole: its steady time stands still, wall time does not."""
        if self._stopped is None:
            now = self._loop.time()
            self._start, self._since, self._stopped = self._at(now), now, now

    def go_on(self) -> bool:
        """False when it does already."""
        if self._stopped is None:
            return False
        self._stood_still_s += self._loop.time() - self._stopped
        self._since, self._stopped = self._loop.time(), None
        self._stood_still_until = self._since
        return True

    @property
    def stood_still_until(self) -> float:
        """By the simulation's own time; it may do so now."""
        return self._stood_still_until if self._stopped is None else self._loop.time()

    def drift(self, ppm: float) -> None:
        now = self._loop.time()
        self._start = self._at(now)
        self._since = now if self._stopped is None else self._stopped
        self.rate = 1 + ppm / 1e6


class SimClock:
    """See `ports.Clock`. What asyncio measures itself (`asyncio.timeout`) goes by the simulation's own time."""

    def __init__(
        self, loop: SimLoop, wall: WallTime, steady: SteadyTime, incarnation: Incarnation
    ) -> None:
        self._loop = loop
        self._wall = wall
        self._steady = steady
        self._incarnation = incarnation

    def now_ms(self) -> int:
        return self._wall.now_ms()

    def steady(self) -> float:
        return self._steady.now()

    def elapsed(self) -> float:
        return self._steady.elapsed()

    async def sleep(self, seconds: float) -> None:
        self._incarnation.check()
        await asyncio.sleep(self._of_loop(seconds))

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self._incarnation.check()
        # The node's own, even when it is the test that sets the timer.
        return self._loop.call_later(
            self._of_loop(seconds), call, context=context_of(self._incarnation)
        )

    def _of_loop(self, seconds: float) -> float:
        """A wait that is a rounding error takes no time here; a real clock goes on by a tick before anybody looks again."""
        return max(seconds / self._steady.rate, CLOCK_RESOLUTION_S) if seconds > 0 else seconds
