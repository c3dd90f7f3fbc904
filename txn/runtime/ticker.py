"""Wakes the owners of timers. The shell around `timers.py`, one on a node."""

import asyncio
from collections.abc import Hashable
from typing import Final, Protocol

from fencepost.cluster.base.ports import Clock

from .decision import TimerKey
from .timers import Timers

DUE_MAX: Final = 500  # handled in one turn of the loop; the rest comes in the next


class TimerOwner(Hashable, Protocol):
    def tick(self, key: TimerKey) -> None: ...


class Ticker:
    """Waits on steady time: a wall clock that jumps throws no member out of its group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers = Timers()
        self._wake = asyncio.Event()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_ms = 0

    def set(self, owner: TimerOwner, key: TimerKey, delay_ms: int) -> None:
        self._timers.set(owner, key, self._now_ms() + max(delay_ms, 0))
        self._arm()

    def cancel(self, owner: TimerOwner, key: TimerKey) -> None:
        self._timers.cancel(owner, key)

    def drop(self, owner: TimerOwner) -> None:
        self._timers.drop(owner)

    async def run(self) -> None:
        """The task of the ticker; ends only when it is cancelled."""
        try:
            while True:
                self._arm()
                await self._wake.wait()
                self._wake.clear()
                self.tick()
        finally:
            self._disarm()

    def tick(self) -> None:
        """Tell every owner whose time has come: the only source of timeouts."""
        owner: TimerOwner
        for owner, key in self._timers.due(self._now_ms(), DUE_MAX):  # type: ignore[assignment]
            owner.tick(key)

    def _arm(self) -> None:
        next_ms = self._timers.next_ms()
        if next_ms is None or (self._handle is not None and self._wakes_ms <= next_ms):
            return
        self._disarm()
        self._wakes_ms = next_ms
        delay_s = max(next_ms - self._now_ms(), 0) / 1000
        self._handle = self._clock.call_later(delay_s, self._woken)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _woken(self) -> None:
        self._handle = None
        self._wake.set()

    def _now_ms(self) -> int:
        return int(self._clock.steady() * 1000)
