"""Those who wait: for an offset to be committed, or for enough to read.

INVARIANT  nobody is woken but by what it waits for, or by an end of the waiting; there is no polling.
PREVENTS   idle consumers costing CPU; and one that sleeps on while there is data for it.
PROVED BY  tests/replication/test_waits.py::test_a_parked_fetch_sleeps_through_everything_but_its_bytes
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, Self

from fencepost.cluster.base.errors import ErrorCode

if TYPE_CHECKING:
    from .log.finding import ReadResult
    from .log.log import Log

CLEAN_AT = 64  # forgotten waits that are kept before they are swept out
ENOUGH: Final = 2**31 - 1  # as many bytes as a fetch can ask to wait for


class OffsetWait:
    """One who waits. `cancel` when nobody wants to know any more."""

    __slots__ = ("_tell", "_waits")

    def __init__(self, tell: Callable[[ErrorCode], None], waits: "OffsetWaits") -> None:
        self._tell: Callable[[ErrorCode], None] | None = tell
        self._waits = waits

    @property
    def is_over(self) -> bool:
        return self._tell is None

    def cancel(self) -> None:
        if self._tell is not None:
            self._tell = None
            self._waits.note_given_up()

    def end(self, outcome: ErrorCode) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(outcome)


class OffsetWaits:
    """Who waits, by the offset that they wait for, the lowest first."""

    __slots__ = ("_given_up", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OffsetWait]] = []
        self._number = 0
        self._given_up = 0

    def __len__(self) -> int:
        return len(self._heap)

    async def wait(self, offset: int) -> ErrorCode:
        """Until `release` passes `offset`. Whoever has no time for ever puts an `asyncio.timeout` around it."""
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        waiting = self.add(
            offset, lambda outcome: None if future.done() else future.set_result(outcome)
        )
        try:
            return await future
        finally:
            waiting.cancel()

    def add(self, offset: int, tell: Callable[[ErrorCode], None]) -> OffsetWait:
        """`tell` is called once, inside `release`: no turn of the loop lies between a commit and its reply."""
        self._number += 1
        waiting = OffsetWait(tell, self)
        heapq.heappush(self._heap, (offset, self._number, waiting))
        return waiting

    def release(self, end: int, outcome: ErrorCode) -> None:
        """Everything below `end` is decided."""
        while self._heap and self._heap[0][0] < end:  # whoever is told may cancel others
            heapq.heappop(self._heap)[2].end(outcome)

    def release_all(self, outcome: ErrorCode) -> None:
        waiting, self._heap = self._heap, []
        for _, _, each in sorted(waiting, key=lambda entry: entry[:2]):
            each.end(outcome)

    def note_given_up(self) -> None:
        """While nothing is committed, clients time out and come again: their old waits must not pile up."""
        self._given_up += 1
        if self._given_up >= CLEAN_AT and self._given_up * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].is_over]
            heapq.heapify(self._heap)
            self._given_up = 0


def worth(
    log: "Log", found: "ReadResult", offset: int, limit: int, max_bytes: int, *, min_one: bool
) -> int:
    """What was read from `offset` counts for, where a fetch waits for its `min_bytes`: as much as would come if a batch
    could be cut. Whoever is in an older segment than the end is not kept waiting at all. (Kafka's DelayedFetch, both.)

    1. An answer ends with a segment, or before the batch that would make it too large.   2. It is smaller than what the consumer
    wants to wait for.   3. What is missing is there, and never comes into this answer: each one would take the whole wait.
    """
    if found.next_offset >= limit:
        return found.size
    if not found.size:
        return 0 if min_one else max_bytes  # nothing more is there; or others took the room for it
    if log.index_of(offset) < log.index_of(limit - 1):
        return ENOUGH
    return max(found.size, max_bytes)


class Readable(Protocol):
    """A partition, as a parked fetch sees it."""

    def readable_bytes(self, offset: int, max_bytes: int, isolation: int) -> int | None:
        """What a fetch from `offset` would get now is `worth`, up to `max_bytes`; None: an answer that can't wait."""

    def when_readable(self, wait: "FetchWait") -> None:
        """Call `wait.on_change` when more can be read, or when something else must be answered."""

    def forget(self, wait: "FetchWait") -> None: ...


class _Watched:
    __slots__ = ("isolation", "max_bytes", "offset", "size")

    def __init__(self, offset: int, max_bytes: int, isolation: int, size: int) -> None:
        self.offset = offset
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.size = size


class FetchWait:
    """One parked fetch (Kafka's DelayedFetch): it is over when its partitions have `min_bytes` for it.

    with FetchWait(min_bytes) as wait:
        for …: wait.watch(partition, …)     # no await since they were read
        await wait.until(seconds)
    """

    __slots__ = ("_done", "_min_bytes", "_size", "_watched")

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = max(min_bytes, 1)
        self._size = 0
        self._watched: dict[Readable, _Watched] = {}
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for partition in self._watched:
            partition.forget(self)
        self._watched.clear()

    def watch(
        self, partition: Readable, offset: int, max_bytes: int, isolation: int, size: int
    ) -> None:
        """`size` is what the partition had for this fetch when it was read just now, or what that is `worth`."""
        self._watched[partition] = _Watched(offset, max_bytes, isolation, size)
        self._size += size
        partition.when_readable(self)

    def on_change(self, partition: Readable) -> None:
        watched = self._watched.get(partition)
        if watched is None or self._done.done():
            return
        size = partition.readable_bytes(watched.offset, watched.max_bytes, watched.isolation)
        if size is not None:
            self._size += size - watched.size
            watched.size = size
        if size is None or self._size >= self._min_bytes:
            self.end()

    def end(self) -> None:
        """There is something to answer, whatever there is to read."""
        if not self._done.done():
            self._done.set_result(None)

    async def until(self, seconds: float) -> bool:
        """Whether it is over before the time is."""
        done, _ = await asyncio.wait((self._done,), timeout=seconds)
        return bool(done)
