"""Faults that are scenes: a node, or a message, is late, and somebody does just then what shows it. Asked for by name.

Workloads come near to these moments by chance alone, and in hundreds of seeds did not (`planted/README.md`). Each scene has
an actor of its own, on a machine that no fault hits, and the checkers of all others; one is played at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ids import BrokerId

from .bystander import Bystander, GivenUp
from .cluster_nodes import node_name
from .left_behind import Matter, Positions, Scene

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

STREAMS: Final = ("stream",)
# Counted to its end: many that strike find one that is being played, or nobody to play with.
PLAYED: Final = "played "
SCENES: Final[set[str]] = set()
# So long is each byte of a leader's on its way, so many times is it asked meanwhile, and it is written to in the middle.
LATE_S: Final = (0.05, 0.08)
ASKED, ASKED_EVERY_S, WRITTEN_AT = 12, 0.005, 3
SHOWN_S: Final = 0.5


def scene(
    play: Callable[[Scene], Awaitable[None]],
) -> Callable[["ClusterFaults"], Awaitable[None]]:
    """A fault that plays it, unless one is played already."""
    name = play.__name__.replace("_", "-")
    SCENES.add(name)

    async def fault(faults: "ClusterFaults") -> None:
        if faults.is_playing:
            return
        faults.is_playing = True
        try:
            one = Scene(faults)
            await play(one)
            faults.world.trace.event("chaos", "played", scene=one.name)
            faults.played[f"{PLAYED}{name}"] += 1
            await one.by.close()
        except (GivenUp, Trouble) as why:
            faults.world.trace.event("chaos", "given up", why=str(why))
        finally:
            faults.is_playing = False

    return fault


@scene
async def left_behind(one: Scene) -> None:
    """A coordinator of groups sleeps, or is cut off, until there is another, and is asked before anybody tells it."""
    positions = await one.positions()
    assert positions is not None
    matters: list[Matter] = [positions]
    leader = one.faults.nodes.leader(*positions.place)
    ends = None if leader is None else one.ends(STREAMS, led_by=leader)
    await one.play([*matters, *([ends] if ends is not None else [])])


@scene
async def unheard_write(one: Scene) -> None:
    """A position is stored at a leader whose bytes are late, is asked for all the while, and the leader is cut off as soon as
    somebody was told of it: whoever leads next has to have it."""
    positions = await one.positions()
    assert positions is not None
    await positions.begin()
    old = one.faults.nodes.leader(*positions.place)
    if old is None:
        raise GivenUp("it is moving")
    asking = asyncio.ensure_future(_until_shown(one, positions, old))
    try:
        _slow_down(one, old)
        await asyncio.wait([asking], timeout=SHOWN_S)
        one.part(old)
        await one.until_succeeded(positions.place, old)
    finally:
        asking.cancel()
        await asyncio.wait([asking])
        one.faults.world.ended(asking)
        _slow_down(one, old, back=True)
        one.join()
    await positions.end()


async def _until_shown(one: Scene, positions: Positions, old: BrokerId) -> None:
    """Ends when somebody has found what is stored here, or when that was acknowledged."""
    newest = positions.newest + 1

    async def later(after_s: float, question: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(after_s)
        try:
            await question()
        except Trouble:
            pass

    tasks = [
        asyncio.ensure_future(
            later(place * ASKED_EVERY_S, lambda: positions.find(old, by=Bystander(one.faults)))
        )
        for place in range(ASKED)
    ]
    store = later(WRITTEN_AT * ASKED_EVERY_S, lambda: positions.store(old, newest))
    stored = asyncio.ensure_future(store)
    waiting = {stored, *tasks}
    try:
        while waiting and not stored.done() and positions.found < newest:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()  # a broken promise is no trouble
    finally:
        for task in [stored, *tasks]:
            task.cancel()


def _slow_down(one: Scene, node_id: BrokerId, *, back: bool = False) -> None:
    name, net = node_name(node_id), one.faults.world.net
    for other in one.faults.nodes.names:
        if other != name:
            net.link(name, other).latency_s = net.link_default.latency_s if back else LATE_S
