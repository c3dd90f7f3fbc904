"""The wall clock, watched against the steady one: whoever sets it by a second or more is told what that means.

INVARIANT  nothing of a node's own waits, sessions and timeouts goes by the wall clock; that it was set changes the
           timestamps of new records, and nothing else.
PREVENTS   a day's worth of records deleted, or a day without an abort, because a machine's time service was mended.
PROVED BY  tests/node/test_clock_set_back.py::test_hours_back_while_it_runs_change_timestamps_and_nothing_else

A jump between two runs is seen by a file that says until when the last one went on.
"""

import time
from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.ports import Env

TICK_S: Final = 5.0
JUMP_MS: Final = 1_000  # in one tick; time services that slew stay below a thousandth
FILE: Final = "last_seen"
WRITE_EVERY: Final = 12  # ticks
# The file may be so old when the node ends, and clocks of machines are off by some seconds anyway.
BEHIND_MS: Final = 5_000


class ClockWatch:
    def __init__(self, env: Env, folder: str, on_tick: Callable[[], None] | None = None) -> None:
        self._env = env
        self._path = f"{folder}/{FILE}"
        self._on_tick = on_tick
        self.jumps = 0

    def start(self) -> None:
        """The folder is this node's by now."""
        last_ms, now_ms = self._last_seen(), self._env.clock.now_ms()
        if last_ms is not None and now_ms < last_ms - BEHIND_MS:
            self.jumps += 1
            self._env.log.warn(
                "clock_behind_last_run",
                now=_shown(now_ms),
                last_seen=_shown(last_ms),
                by_s=round((last_ms - now_ms) / 1000, 1),
            )
        self._env.tasks.spawn(self._run(), name="clock watch")

    async def _run(self) -> None:
        clock = self._env.clock
        wall_ms, steady_s, ticks = clock.now_ms(), clock.steady(), 0
        while True:
            await self._write(wall_ms) if ticks % WRITE_EVERY == 0 else None
            await clock.sleep(TICK_S)
            ticks += 1
            now_ms, now_s = clock.now_ms(), clock.steady()
            expected_ms = wall_ms + round((now_s - steady_s) * 1000)
            if abs(now_ms - expected_ms) >= JUMP_MS:
                self.jumps += 1
                self._env.log.warn(
                    "clock_jumped",
                    direction="back" if now_ms < expected_ms else "ahead",
                    by_s=round(abs(now_ms - expected_ms) / 1000, 1),
                    before=_shown(expected_ms),
                    after=_shown(now_ms),
                )
                ticks = 0  # and write it down
            wall_ms, steady_s = now_ms, now_s
            if self._on_tick is not None:
                self._on_tick()

    async def stop(self) -> None:
        await self._write(self._env.clock.now_ms())

    def _last_seen(self) -> int | None:
        try:
            return int(self._env.disk.read_all(self._path))
        except (OSError, ValueError):
            return None  # the first run, or a file that says nothing: nothing rests on it

    async def _write(self, now_ms: int) -> None:
        try:
            await self._env.disk.run(self._env.disk.replace, self._path, b"%d" % now_ms)
        except OSError:
            return  # a full disk is told of by whoever needs it


def _shown(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))
