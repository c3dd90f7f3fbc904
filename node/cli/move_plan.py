"""Which replicas move where, so that a node is empty, or a new one has its share: pure, from what the cluster says.

INVARIANT  no partition has a replica twice or on a node that is to be empty, its factor stays, and the racks that
           it is spread over become no fewer. Only what must move does, the smallest first.
PREVENTS   a plan that copies the whole cluster to even out three partitions.
PROVED BY  tests/node/test_move_plan.py::test_a_plan_is_valid_and_balanced_and_moves_no_more_than_it_must

All plans are made the same way: there is a load for each node, and steps that take one from a node and give it to
another. While some node has two more than another that it can give one to, over others if need be, it gives one
along the shortest way. The replicas are evened out first, then who is the first of them, which moves nothing.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Key = tuple[str, int]
Rack = str | None


class PlanImpossible(Exception):
    """What is asked for can't be: a sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition, where its replicas are (the preferred leader first), and how large one of them is."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Replicas of one partition go elsewhere, or only their order changes."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int = 0

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(each for each in self.after if each not in self.before)

    @property
    def bytes_copied(self) -> int:
        return self.size * len(self.added)


@dataclass(slots=True)
class _Layout:
    """Where everything is while a plan is made. `nodes` are those that may have something."""

    nodes: list[int]
    racks: Mapping[int, Rack]
    replicas: dict[Key, list[int]]
    sizes: dict[Key, int]
    # Node -> topic -> its partitions there, as (size, partition) in that order.
    on: dict[int, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    loads: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, replicas in self.replicas.items():
            for node in replicas:
                self._count(key, node, 1)

    def _count(self, key: Key, node: int, by: int) -> None:
        topic, partition = key
        here = self.on.setdefault(node, {}).setdefault(topic, [])
        entry = (self.sizes[key], partition)
        if by > 0:
            bisect.insort(here, entry)
        else:
            del here[bisect.bisect_left(here, entry)]
        self.loads[node] = self.load(node) + by

    def load(self, node: int) -> int:
        return self.loads.get(node, 0)

    def topic_load(self, topic: str, node: int) -> int:
        return len(self.on.get(node, {}).get(topic, ()))

    def keys_on(self, node: int) -> list[Key]:
        here = self.on.get(node, {})
        return [(topic, partition) for topic in sorted(here) for _, partition in here[topic]]

    def move(self, key: Key, giver: int, taker: int) -> None:
        replicas = self.replicas[key]
        replicas[replicas.index(giver)] = taker
        self._count(key, giver, -1)
        self._count(key, taker, 1)

    def keeps_spread(self, key: Key, giver: int, taker: int) -> bool:
        """Whether the replicas are on as many racks afterwards."""
        rack = self.racks.get(taker)
        if rack == self.racks.get(giver):
            return True
        left = {self.racks.get(each) for each in self.replicas[key] if each != giver}
        return rack not in left or self.racks.get(giver) in left

    def may_move(self, key: Key, giver: int, taker: int) -> bool:
        return taker not in self.replicas[key] and self.keeps_spread(key, giver, taker)

    def cheapest(
        self, giver: int, taker: int, *, allowed: Callable[[Key], bool] = lambda _: True
    ) -> Key | None:
        """What moves first: what its topic has most of here, followers before leaders, the smallest."""

        def skew(topic: str) -> tuple[int, str]:
            return self.topic_load(topic, taker) - self.topic_load(topic, giver), topic

        for topic in sorted(self.on.get(giver, {}), key=skew):
            leads: Key | None = None
            for _, partition in self.on[giver][topic]:
                key = topic, partition
                if not allowed(key) or not self.may_move(key, giver, taker):
                    continue
                if self.replicas[key][0] != giver:
                    return key
                leads = leads or key
            if leads is not None:
                return leads
        return None


# --- the plans ------------------------------------------------------------------------------------


def plan_drain(places: Iterable[Place], racks: Mapping[int, Rack], node: int) -> list[Move]:
    """Nothing is left on `node`. `racks` are those of the nodes that are alive, and of this one."""
    before = list(places)
    layout = _layout(before, [each for each in racks if each != node], racks)
    mine = sorted(layout.keys_on(node), key=lambda key: (-layout.sizes[key], key))
    if mine and not layout.nodes:
        raise PlanImpossible(
            f"node {node} is the only one that is alive: nothing can take its replicas"
        )
    led = [key for key in mine if layout.replicas[key][0] == node]
    for key in mine:
        layout.move(key, node, _refuge(layout, key, node))
    given = set(mine)
    # Where two were as good then, the other may be better now that all have found a place.
    original = {(each.topic, each.partition): each.replicas for each in before}

    def steps(giver: int, taker: int, used: frozenset[Key]) -> Key | None:
        return layout.cheapest(
            giver,
            taker,
            allowed=lambda key: key in given and key not in used and giver not in original[key],
        )

    _even_out(layout.nodes, layout.load, steps, layout.move)
    _even_out_leaders(layout, led)
    return _moves(before, layout)


def plan_add(places: Iterable[Place], racks: Mapping[int, Rack], node: int) -> list[Move]:
    """`node` gets its share, from those that have most; nothing else moves."""
    if node not in racks:
        raise PlanImpossible(f"node {node} is not alive")
    before = list(places)
    layout = _layout(before, racks, racks)
    while True:
        givers = [each for each in layout.nodes if layout.load(each) >= layout.load(node) + 2]
        for giver in sorted(givers, key=lambda each: (-layout.load(each), each)):
            key = layout.cheapest(giver, node)
            if key is not None:
                layout.move(key, giver, node)
                break
        else:
            break
    _even_out_leaders(layout, layout.keys_on(node), taker_only=node)
    return _moves(before, layout)


def plan_rebalance(places: Iterable[Place], racks: Mapping[int, Rack]) -> list[Move]:
    """Every node that is alive has as many replicas as the others, and is the first of as many."""
    before = list(places)
    layout = _layout(before, racks, racks)

    def steps(giver: int, taker: int, used: frozenset[Key]) -> Key | None:
        return layout.cheapest(giver, taker, allowed=lambda key: key not in used)

    _even_out(layout.nodes, layout.load, steps, layout.move)
    _even_out_leaders(layout, list(layout.replicas))
    return _moves(before, layout)


def leaders_first(moves: Iterable[Move], node: int) -> list[Move]:
    """What `node` leads is led by its other replicas, before anything is copied."""
    return [
        Move(
            topic=move.topic,
            partition=move.partition,
            before=move.before,
            after=(*(each for each in move.before if each != node), node),
        )
        for move in moves
        if move.before[0] == node and len(move.before) > 1
    ]


def loads(places: Iterable[Place], nodes: Iterable[int]) -> dict[int, tuple[int, int, int]]:
    """How many replicas each node has, of how many it is the first, and how many bytes that is."""
    found = dict.fromkeys(sorted(nodes), (0, 0, 0))
    for place in places:
        for node in place.replicas:
            replicas, first, size = found.get(node, (0, 0, 0))
            is_first = place.replicas[0] == node
            found[node] = (replicas + 1, first + is_first, size + place.size)
    return found


def after(places: Iterable[Place], moves: Iterable[Move]) -> list[Place]:
    """Where everything is when the moves are done."""
    moved = {(move.topic, move.partition): move.after for move in moves}
    return [
        Place(
            topic=each.topic,
            partition=each.partition,
            replicas=moved.get((each.topic, each.partition), each.replicas),
            size=each.size,
        )
        for each in places
    ]


# --- how --------------------------------------------------------------------------------------------


def _layout(places: Sequence[Place], nodes: Iterable[int], racks: Mapping[int, Rack]) -> _Layout:
    return _Layout(
        nodes=sorted(nodes),
        racks=racks,
        replicas={(each.topic, each.partition): list(each.replicas) for each in places},
        sizes={(each.topic, each.partition): each.size for each in places},
    )


def _moves(before: Sequence[Place], layout: _Layout) -> list[Move]:
    """Those that copy least first: something is done soon, and what fails does so early."""
    moves = [
        Move(
            topic=each.topic,
            partition=each.partition,
            before=each.replicas,
            after=tuple(layout.replicas[each.topic, each.partition]),
            size=each.size,
        )
        for each in before
        if list(each.replicas) != layout.replicas[each.topic, each.partition]
    ]
    return sorted(moves, key=lambda each: (each.bytes_copied, each.topic, each.partition))


def _refuge(layout: _Layout, key: Key, node: int) -> int:
    """Who takes over from a node that is emptied: racks first, then whoever has least."""
    others = [each for each in layout.replicas[key] if each != node]
    free = [each for each in layout.nodes if each not in others]
    if not free:
        factor = len(layout.replicas[key])
        raise PlanImpossible(
            f"{key[0]}-{key[1]} has {factor} replicas, and without node {node} only"
            f" {len(layout.nodes)} nodes are alive: add a node first"
        )
    racks = {layout.racks.get(each) for each in others}
    return min(
        free,
        key=lambda each: (
            layout.racks.get(each) in racks,
            layout.load(each),
            layout.topic_load(key[0], each),
            each,
        ),
    )


Steps = Callable[[int, int, frozenset[Key]], Key | None]


def _even_out(
    nodes: Sequence[int],
    load: Callable[[int], int],
    step: Steps,
    move: Callable[[Key, int, int], None],
) -> None:
    """Until no node can give one to a node that has two less. `step` says what could go, if anything."""
    while True:
        path = _best_path(nodes, load, step)
        if path is None:
            return
        for key, giver, taker in path:
            move(key, giver, taker)


def _best_path(
    nodes: Sequence[int], load: Callable[[int], int], step: Steps
) -> list[tuple[Key, int, int]] | None:
    """The shortest way from the fullest node that has one to the emptiest that it reaches."""
    for start in sorted(nodes, key=lambda each: (-load(each), each)):
        if load(start) < min(map(load, nodes)) + 2:
            return None
        ways: dict[int, list[tuple[Key, int, int]]] = {start: []}
        frontier = [start]
        while frontier:
            reached: list[int] = []
            for giver in frontier:
                used = frozenset(key for key, _, _ in ways[giver])
                for taker in sorted(nodes, key=lambda each: (load(each), each)):
                    if taker in ways:
                        continue
                    key = step(giver, taker, used)
                    if key is None:
                        continue
                    ways[taker] = [*ways[giver], (key, giver, taker)]
                    if load(taker) <= load(start) - 2:
                        return ways[taker]
                    reached.append(taker)
            frontier = reached
    return None


def _even_out_leaders(
    layout: _Layout, keys: Iterable[Key], *, taker_only: int | None = None
) -> None:
    """Of these partitions another replica may become the first, until all nodes are that of as many."""
    led: dict[int, dict[Key, None]] = {node: {} for node in layout.nodes}
    for key, replicas in layout.replicas.items():
        led.setdefault(replicas[0], {})[key] = None
    changeable = dict.fromkeys(keys)

    def step(giver: int, taker: int, used: frozenset[Key]) -> Key | None:
        if taker_only is not None and taker != taker_only:
            return None
        for key in led[giver]:
            if key in changeable and key not in used and taker in layout.replicas[key]:
                return key
        return None

    def move(key: Key, giver: int, taker: int) -> None:
        replicas = layout.replicas[key]
        replicas.remove(taker)
        replicas.insert(0, taker)
        del led[giver][key]
        led[taker][key] = None

    _even_out(layout.nodes, lambda node: len(led[node]), step, move)
