"""Group commit: all partitions that were written in a turn of the loop are synced together, off its thread.

INVARIANT  a partition hears of a sync only when it is over, and of a failed one always.
PREVENTS   one fsync for each batch where one for all would do; an acknowledgement for bytes that a sync, which began
           before they were written, did not cover.
PROVED BY  tests/replication/test_flusher.py::test_what_is_written_during_a_sync_waits_for_the_next

While one sync runs, the next group collects: the slower the disk, the larger the groups. Partitions that need not be
synced at once (flush.policy interval, os) wait together on one timer.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from fencepost.cluster.base.ports import Clock

from .metrics import Counters

# flush.policy=os: how long a log stays unsynced. It bounds what a start after a power cut must check.
LATER_MS_MAX: Final = 60_000
RECENT: Final = 256  # group commits that are remembered
LATER_MAX: Final = 1_000  # partitions; what is not synced keeps its file open


class Flushable(Protocol):
    __slots__ = ()

    def on_synced(self) -> None:
        """What was in the log when the sync began is durable."""

    def on_sync_failed(self, error: OSError) -> None: ...


class Flusher:
    def __init__(
        self,
        clock: Clock,
        sync: Callable[[Sequence[Flushable]], Awaitable[None]],
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._sync = sync
        self._counters = counters
        self._now: dict[Flushable, None] = {}
        self._later: dict[Flushable, float] = {}  # when each is due
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._wake = asyncio.Event()
        self._is_closing = False
        # Begin and end of the last group commits, for whoever asks where a slow request's time went. One that runs has
        # no end yet: infinity.
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def soon(self, partition: Flushable) -> None:
        """It was written, and somebody waits for it to be durable."""
        self._later.pop(partition, None)
        self._now[partition] = None
        self._wake.set()

    def later(self, partition: Flushable, delay_ms: int) -> None:
        """It was written; sync it within `delay_ms` of the first write since the last sync."""
        if partition in self._later or partition in self._now:
            return
        if len(self._later) >= LATER_MAX:
            self.soon(next(iter(self._later)))  # the one that waits the longest
        due = self._clock.steady() + delay_ms / 1000
        self._later[partition] = due
        self._arm(due)

    def forget(self, partition: Flushable) -> None:
        """It is closed: whatever was to be synced is nobody's business any more."""
        self._now.pop(partition, None)
        self._later.pop(partition, None)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._clock.call_later(max(0.0, due - self._clock.steady()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.steady()
        for partition in [each for each, due in self._later.items() if due <= now]:
            self.soon(partition)
        if self._later:
            self._arm(min(self._later.values()))

    async def run(self) -> None:
        """The one task that syncs; it ends after `close`."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._now:
                await self._sync_group()
            if self._is_closing and not self._now:
                return

    async def _sync_group(self) -> None:
        group, self._now = self._now, {}
        counters = self._counters
        counters.syncs += 1
        counters.synced_partitions += len(group)
        started = self._clock.steady()
        self.recent.append((started, math.inf))
        try:
            await self._sync(list(group))
        except OSError as error:
            counters.sync_failures += 1
            for partition in group:
                partition.on_sync_failed(error)
        else:
            for partition in group:
                partition.on_synced()
        ended = self._clock.steady()
        self.recent[-1] = (started, ended)
        counters.sync_s.observe(ended - started)

    def close(self) -> None:
        """`run` ends when what waits has been synced."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake.set()
