"""Where everything is while a plan of moves is made, and what goes next from one node to another; pure.

What may go between two nodes is listed when it is first asked for, and kept up to date with every move: of ten thousand
partitions of which most can't go, the next one is found without looking at the others.
"""

import bisect
import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Key = tuple[str, int]
Rack = str | None
NOTHING: frozenset[Key] = frozenset()


class _Way:
    """What may go from one node to another: of each topic followers and leaders, the smallest first."""

    __slots__ = ("heap", "keys", "topics")

    def __init__(self) -> None:
        self.keys: set[Key] = set()  # asked, never walked over
        self.topics: dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
        # (skew, topic). An entry whose skew has changed, or whose topic has nothing left, is dropped when met.
        self.heap: list[tuple[int, str]] = []

    def has(self, topic: str) -> bool:
        return any(self.topics.get(topic, ()))

    def add(self, key: Key, size: int, *, leads: bool) -> None:
        topic, partition = key
        self.keys.add(key)
        lists = self.topics.setdefault(topic, ([], []))
        bisect.insort(lists[leads], (size, partition))

    def drop(self, key: Key, size: int, *, leads: bool) -> None:
        if key not in self.keys:
            return
        self.keys.remove(key)
        entries = self.topics[key[0]][leads]
        del entries[bisect.bisect_left(entries, (size, key[1]))]


@dataclass(slots=True)
class Layout:
    """`nodes` are those that may have something. `may_go` says what a plan lets go from where; it never changes."""

    nodes: list[int]
    racks: Mapping[int, Rack]
    replicas: dict[Key, list[int]]
    sizes: dict[Key, int]
    may_go: Callable[[Key, int], bool] = lambda _key, _giver: True
    loads: dict[int, int] = field(default_factory=dict)
    # Node -> topic -> its partitions there, as (size, partition) in that order.
    _on: dict[int, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    _ways_from: dict[int, dict[int, _Way]] = field(default_factory=dict)
    _ways_to: dict[int, dict[int, _Way]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, replicas in self.replicas.items():
            for node in replicas:
                self._on.setdefault(node, {}).setdefault(key[0], []).append(
                    (self.sizes[key], key[1])
                )
                self.loads[node] = self.load(node) + 1
        for topics in self._on.values():
            for here in topics.values():
                here.sort()

    def load(self, node: int) -> int:
        return self.loads.get(node, 0)

    def topic_load(self, topic: str, node: int) -> int:
        return len(self._on.get(node, {}).get(topic, ()))

    def keys_on(self, node: int) -> list[Key]:
        here = self._on.get(node, {})
        return [(topic, partition) for topic in sorted(here) for _, partition in here[topic]]

    def keeps_spread(self, key: Key, giver: int, taker: int) -> bool:
        """Whether the replicas are on as many racks afterwards."""
        rack = self.racks.get(taker)
        if rack == self.racks.get(giver):
            return True
        left = {self.racks.get(each) for each in self.replicas[key] if each != giver}
        return rack not in left or self.racks.get(giver) in left

    def may_move(self, key: Key, giver: int, taker: int) -> bool:
        return taker not in self.replicas[key] and self.keeps_spread(key, giver, taker)

    def cheapest(self, giver: int, taker: int, used: frozenset[Key] = NOTHING) -> Key | None:
        """What moves first: what its topic has most of here, followers before leaders, the smallest."""
        way = self._way(giver, taker)
        passed: list[tuple[int, str]] = []  # all that they have is used
        found: Key | None = None
        while way.heap and found is None:
            skew, topic = way.heap[0]
            if way.has(topic) and skew == self._skew(topic, giver, taker):
                found = _first(topic, way, used)
                if found is not None:
                    break
                passed.append(way.heap[0])
            heapq.heappop(way.heap)
        for entry in passed:
            heapq.heappush(way.heap, entry)
        return found

    def _skew(self, topic: str, giver: int, taker: int) -> int:
        return self.topic_load(topic, taker) - self.topic_load(topic, giver)

    def _way(self, giver: int, taker: int) -> _Way:
        known = self._ways_from.get(giver, {}).get(taker)
        if known is not None:
            return known
        way = _Way()
        for key in self.keys_on(giver):
            if self.may_go(key, giver) and self.may_move(key, giver, taker):
                way.add(key, self.sizes[key], leads=self.replicas[key][0] == giver)
        way.heap = [(self._skew(topic, giver, taker), topic) for topic in way.topics]
        heapq.heapify(way.heap)
        self._ways_from.setdefault(giver, {})[taker] = way
        self._ways_to.setdefault(taker, {})[giver] = way
        return way

    # --- moving ---

    def move(self, key: Key, giver: int, taker: int) -> None:
        replicas, size, topic = self.replicas[key], self.sizes[key], key[0]
        for node in replicas:
            for way in self._ways_from.get(node, {}).values():
                way.drop(key, size, leads=replicas[0] == node)
        replicas[replicas.index(giver)] = taker
        here = self._on[giver][topic]
        del here[bisect.bisect_left(here, (size, key[1]))]
        there = self._on.setdefault(taker, {}).setdefault(topic, [])
        bisect.insort(there, (size, key[1]))
        self.loads[giver] = self.load(giver) - 1
        self.loads[taker] = self.load(taker) + 1
        for node in replicas:
            for other, way in self._ways_from.get(node, {}).items():
                if self.may_go(key, node) and self.may_move(key, node, other):
                    way.add(key, size, leads=replicas[0] == node)
                    heapq.heappush(way.heap, (self._skew(topic, node, other), topic))
        for node in (giver, taker):
            for other, way in self._ways_from.get(node, {}).items():
                if way.has(topic):
                    heapq.heappush(way.heap, (self._skew(topic, node, other), topic))
            for other, way in self._ways_to.get(node, {}).items():
                if way.has(topic):
                    heapq.heappush(way.heap, (self._skew(topic, other, node), topic))


def _first(topic: str, way: _Way, used: frozenset[Key]) -> Key | None:
    for entries in way.topics[topic]:
        for _, partition in entries:
            if (topic, partition) not in used:
                return topic, partition
    return None
