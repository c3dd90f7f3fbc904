"""The deadlines of every coordinator on a node, in one heap.

INVARIANT  a key is due at most once for each time it was set, and never before the last time set.
PREVENTS   a member that sent a heartbeat being thrown out by the deadline of the one before.
PROVED BY  tests/txn/test_timers.py::test_the_heap_agrees_with_a_plain_list_of_deadlines

A heartbeat moves a deadline later, thousands of times a second and hardly ever to its end. So a move
to a later time only notes the new time; the heap's old entry finds it when it comes up, and goes back in.
What was cancelled stays in the heap likewise, until it comes up or is the larger part of it.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Final

from .decision import TimerKey

DEAD_MAX: Final = 1_000  # entries of the heap that nobody needs, besides as many as are needed


class Timers:
    """Times are steady milliseconds; whoever owns the clock calls `due`."""

    def __init__(self) -> None:
        self._due_ms: dict[Hashable, dict[TimerKey, int]] = {}
        self._heap: list[tuple[int, int, Hashable, TimerKey]] = []
        self._entries: dict[tuple[Hashable, TimerKey], int] = {}  # the earliest entry in the heap
        self._alive = 0  # keys that are set
        self._serial = 0  # equal times come out in the order in which they were set

    def set(self, owner: Hashable, key: TimerKey, due_ms: int) -> None:
        keys = self._due_ms.setdefault(owner, {})
        self._alive += key not in keys
        keys[key] = due_ms
        entry_ms = self._entries.get((owner, key))
        if entry_ms is None or due_ms < entry_ms:
            self._push(owner, key, due_ms)

    def cancel(self, owner: Hashable, key: TimerKey) -> None:
        if self._due_ms.get(owner, {}).pop(key, None) is not None:
            self._alive -= 1

    def drop(self, owner: Hashable) -> None:
        """Forget all that this owner had set."""
        self._alive -= len(self._due_ms.pop(owner, ()))

    def next_ms(self) -> int | None:
        """When to call `due` next. May be early, by what was moved since; never late."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, limit: int) -> Iterator[tuple[Hashable, TimerKey]]:
        """Take out at most `limit` keys whose time has come, in order of time."""
        while limit > 0 and self._heap and self._heap[0][0] <= now_ms:
            entry_ms, _, owner, key = heapq.heappop(self._heap)
            if self._entries.get((owner, key)) != entry_ms:
                continue  # a later entry than the one that counts
            del self._entries[owner, key]
            keys = self._due_ms.get(owner, {})
            due_ms = keys.get(key)
            if due_ms is None:
                continue
            if due_ms > now_ms:
                self._push(owner, key, due_ms)
                continue
            del keys[key]
            self._alive -= 1
            limit -= 1
            yield owner, key

    def _push(self, owner: Hashable, key: TimerKey, due_ms: int) -> None:
        self._serial += 1
        self._entries[owner, key] = due_ms
        heapq.heappush(self._heap, (due_ms, self._serial, owner, key))
        if len(self._heap) > 2 * self._alive + DEAD_MAX:
            self._bury()

    def _bury(self) -> None:
        """Each live key keeps the entry that finds it. More goes than is left, so setting a key stays cheap."""
        self._heap = [
            entry
            for entry in self._heap
            if self._entries.get(entry[2:]) == entry[0]
            and entry[3] in self._due_ms.get(entry[2], ())
        ]
        self._entries = {entry[2:]: entry[0] for entry in self._heap}
        heapq.heapify(self._heap)
