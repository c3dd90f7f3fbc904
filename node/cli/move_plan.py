"""Which replicas move where, so that a node is empty, or a new one has its share: pure, from what the cluster says.

INVARIANT  no partition has a replica twice or on a node that is to be empty, its factor stays, and the racks that
           it is spread over become no fewer. Only what must move does, the smallest first.
PREVENTS   a plan that copies the whole cluster to even out three partitions.
PROVED BY  tests/node/test_move_plan.py::test_a_plan_is_valid_and_balanced_and_moves_no_more_than_it_must

All plans are made the same way: there is a load for each node, and steps that take one from a node and give it to
another. While some node has two more than another that it can give one to, over others if need be, it gives one
along the shortest way. The replicas are evened out first, then who is the first of them, which moves nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .move_layout import Key, Layout, Rack


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


# --- the plans ------------------------------------------------------------------------------------


def plan_drain(places: Iterable[Place], racks: Mapping[int, Rack], node: int) -> list[Move]:
    """Nothing is left on `node`. `racks` are those of the nodes that are alive, and of this one."""
    before = list(places)
    given: dict[Key, tuple[int, ...]] = {}  # what was taken from it, and where it had replicas

    def may_go(key: Key, giver: int) -> bool:
        return key in given and giver not in given[key]

    layout = _layout(before, [each for each in racks if each != node], racks, may_go)
    mine = sorted(layout.keys_on(node), key=lambda key: (-layout.sizes[key], key))
    if mine and not layout.nodes:
        raise PlanImpossible(
            f"node {node} is the only one that is alive: nothing can take its replicas"
        )
    led = [key for key in mine if layout.replicas[key][0] == node]
    given.update((key, tuple(layout.replicas[key])) for key in mine)
    for key in mine:
        layout.move(key, node, _refuge(layout, key, node))
    # Where two were as good then, the other may be better now that all have found a place.
    _even_out(layout.nodes, layout.load, layout.cheapest, layout.move)
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
    """Every node that is alive has as many replicas as the others, and is the first of as many.

    Before that, partitions are spread over as many racks as they can be: what is on one is gone with it.
    """
    before = list(places)
    layout = _layout(before, racks, racks)
    for key in sorted(layout.replicas):
        _spread(layout, key)
    _even_out(layout.nodes, layout.load, layout.cheapest, layout.move)
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


def _layout(
    places: Sequence[Place],
    nodes: Iterable[int],
    racks: Mapping[int, Rack],
    may_go: Callable[[Key, int], bool] = lambda _key, _giver: True,
) -> Layout:
    return Layout(
        nodes=sorted(nodes),
        racks=racks,
        replicas={(each.topic, each.partition): list(each.replicas) for each in places},
        sizes={(each.topic, each.partition): each.size for each in places},
        may_go=may_go,
    )


def _spread(layout: Layout, key: Key) -> None:
    """While two replicas share a rack and another rack has none: from whoever has more, followers first."""
    replicas, racks = layout.replicas[key], layout.racks
    while True:
        on = [racks.get(each) for each in replicas]
        doubled = [each for each in replicas if each in racks and on.count(racks[each]) > 1]
        free = [each for each in layout.nodes if racks.get(each) not in on]
        if not doubled or not free:
            return
        giver = max(doubled, key=lambda each: (replicas[0] != each, layout.load(each), each))
        taker = min(
            free, key=lambda each: (layout.load(each), layout.topic_load(key[0], each), each)
        )
        layout.move(key, giver, taker)


def _moves(before: Sequence[Place], layout: Layout) -> list[Move]:
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


def _refuge(layout: Layout, key: Key, node: int) -> int:
    """Who takes over from a node that is emptied: racks first, then whoever has least."""
    others = [each for each in layout.replicas[key] if each != node]
    free = [each for each in layout.nodes if each not in others]
    if not free:
        factor, left = len(layout.replicas[key]), len(layout.nodes)
        raise PlanImpossible(
            f"{key[0]}-{key[1]} has {factor} replicas, and without node {node} only"
            f" {left} {'node is' if left == 1 else 'nodes are'} alive: add a node first; or, if node {node} is gone for good, start"
            f" one with node.id={node} and an empty folder: it copies what it had"
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
    layout: Layout, keys: Iterable[Key], *, taker_only: int | None = None
) -> None:
    """Of these partitions another replica may become the first, until all nodes are that of as many."""
    led = dict.fromkeys(layout.nodes, 0)
    changeable = dict.fromkeys(keys)
    # (who is the first, who else has it) -> of which partitions
    may: dict[tuple[int, int], dict[Key, None]] = {}
    for key, (first, *others) in layout.replicas.items():
        led[first] = led.get(first, 0) + 1
        for other in others if key in changeable else ():
            may.setdefault((first, other), {})[key] = None

    def step(giver: int, taker: int, used: frozenset[Key]) -> Key | None:
        if taker_only is not None and taker != taker_only:
            return None
        return next((key for key in may.get((giver, taker), ()) if key not in used), None)

    def move(key: Key, giver: int, taker: int) -> None:
        replicas = layout.replicas[key]
        for other in replicas[1:]:
            del may[giver, other][key]
        replicas.remove(taker)
        replicas.insert(0, taker)
        for other in replicas[1:]:
            may.setdefault((taker, other), {})[key] = None
        led[giver] -= 1
        led[taker] += 1

    _even_out(layout.nodes, led.__getitem__, step, move)
