"""Faults that change who belongs to the cluster: voters, brokers that come and go for good, builds that are older."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.controller.commands import (
    AlterReassignments,
    ControllerCommand,
    Reassignment,
    UnregisterBroker,
)

from .cluster_builds import GROUPS, NEWEST, TRANSACTIONS, WITHOUT, to_level
from .cluster_nodes import PEER_PORT, node_name
from .world import NodeLost

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

VOTERS_MIN: Final = 2
BROKERS_MIN, BROKERS_MAX = 3, 6
CHANGE_S: Final = 4.0
GOES_S: Final = 8.0
LOOK_S: Final = 0.1
DOWNGRADE_ODDS: Final = 0.3


async def change_voters(faults: "ClusterFaults") -> None:
    """One voter less, or one more."""
    controller = faults.nodes.controller()
    if controller is None:
        return
    quorum = faults.nodes.broker(controller).quorum
    voters = sorted(quorum.voters)
    others = [each for each in faults.nodes.ids if each not in voters and each != faults.leaving]
    change: dict[str, Any]
    if others and (len(voters) <= VOTERS_MIN or faults.rng.random() < 0.5):
        joins = faults.rng.choice(others)
        change = {"add": (joins, (node_name(joins), PEER_PORT))}
    elif len(voters) > VOTERS_MIN:
        change = {"remove": BrokerId(faults.rng.choice(voters))}
    else:
        return
    faults.world.trace.event("chaos", "voters", change=change)
    work = faults.world.on(faults.world.node(node_name(controller)), quorum.change_voters(**change))
    with contextlib.suppress(Trouble, TimeoutError, NodeLost):
        await asyncio.wait_for(work, CHANGE_S * faults.rng.random())


# --- brokers --------------------------------------------------------------------------------------


async def broker_comes(faults: "ClusterFaults") -> None:
    """A machine that nobody knew starts as a node. What is moved may be moved there from now on."""
    nodes = faults.nodes
    if not BROKERS_MIN <= len(nodes.ids) < BROKERS_MAX:
        return
    node_id = BrokerId(nodes.newest_id + 1)
    nodes.ids.append(node_id)
    nodes.newest_id = node_id
    nodes.start(node_id)
    faults.world.trace.event("chaos", "comes", node=node_id)


async def broker_goes(faults: "ClusterFaults") -> None:
    """What a node has is moved away, it stops cleanly, and is taken off the list: for good, if all of that is done in time."""
    nodes = faults.nodes
    controller = nodes.controller()
    if controller is None or len(nodes.ids) <= BROKERS_MIN or faults.leaving is not None:
        return
    voters = nodes.broker(controller).quorum.voters
    others = [each for each in nodes.ids if each not in voters and each not in nodes.voters]
    if not others:
        return
    node_id = faults.rng.choice(others)
    faults.leaving = node_id
    try:
        async with asyncio.timeout(GOES_S):
            while _has_replicas(faults, node_id):
                await _move_away(faults, node_id)
                await asyncio.sleep(LOOK_S)
            await _leave(faults, node_id)
    except TimeoutError:
        pass  # it stays
    finally:
        faults.leaving = None


def _has_replicas(faults: "ClusterFaults", node_id: BrokerId) -> bool:
    image = faults.nodes.image
    if image is None:
        return True
    return any(node_id in state.replicas for _, state in image.partitions_of(node_id))


def _votes(faults: "ClusterFaults", node_id: BrokerId) -> bool:
    """For somebody: who was asked to become a voter before it began to leave may be one yet."""
    nodes = faults.nodes
    return any(node_id in nodes.brokers[each].quorum.voters for each in nodes.up())


async def _move_away(faults: "ClusterFaults", node_id: BrokerId) -> None:
    image = faults.nodes.image
    if image is None:
        return
    stay = [each for each in faults.nodes.ids if each != node_id]
    moves = []
    for topic, state in image.partitions_of(node_id):
        if state.adding or state.removing:
            continue  # it is on its way
        kept = [each for each in state.replicas if each != node_id]
        free = [each for each in stay if each not in kept]
        if free:
            kept.append(faults.rng.choice(free))
        if kept:
            moves.append(
                Reassignment(topic=topic.name, partition=state.partition, replicas=tuple(kept))
            )
    if moves:
        await _ask(faults, AlterReassignments(partitions=tuple(moves)))


async def _leave(faults: "ClusterFaults", node_id: BrokerId) -> None:
    """Held down until it is off the list; if something was put there meanwhile, it comes back."""
    faults.hold_down(node_id, 1)
    try:
        try:
            if node_id in faults.nodes.ready() and not faults.nodes.is_paused(node_id):
                with contextlib.suppress(NodeLost):
                    await faults.nodes.stop(node_id)
        finally:  # also when time is up: no process stays half stopped
            if faults.nodes.is_up(node_id):
                faults.world.kill(node_name(node_id))
        while True:
            # `fencepost node forget` asks for that, too: gone for good, it would be missed in every vote.
            if _votes(faults, node_id):
                break
            result = await _ask(faults, UnregisterBroker(broker_id=node_id))
            code = None if result is None else result.error_code
            if code in (ErrorCode.none, ErrorCode.broker_id_not_registered):
                break
            if code is ErrorCode.invalid_request and _has_replicas(faults, node_id):
                break  # it may be the last that has something
            await asyncio.sleep(LOOK_S)
        if not _has_replicas(faults, node_id) and not _votes(faults, node_id):
            faults.nodes.ids.remove(node_id)
            faults.world.trace.event("chaos", "goes", node=node_id)
    finally:
        faults.hold_down(node_id, -1)


async def _ask(faults: "ClusterFaults", command: ControllerCommand[Any]) -> Any:
    """What the controller answers through some node; None when it does not."""
    ready = faults.nodes.ready()
    if not ready:
        return None
    asked = faults.rng.choice(ready)
    work = faults.nodes.broker(asked).controller.execute(command)
    try:
        return await faults.world.on(faults.world.node(node_name(asked)), work)
    except (Trouble, NodeLost):
        return None


# --- builds ---------------------------------------------------------------------------------------


async def older_build(faults: "ClusterFaults") -> None:
    """A node comes back as an older build, which does not know some command. It may end itself for that, with a sentence,
    and nobody else may; later it is upgraded again."""
    node_id = faults.rng.choice(faults.nodes.ids)
    if node_id in faults.nodes.builds:
        return
    faults.nodes.builds[node_id] = faults.rng.choice(WITHOUT)
    try:
        await faults.down([node_id])
        await asyncio.sleep(faults.hold())
    finally:
        del faults.nodes.builds[node_id]
        if faults.nodes.is_up(node_id):
            faults.world.kill(node_name(node_id))


async def upgrade(faults: "ClusterFaults") -> None:
    """One more node is started with the new build; when all have it, the levels of features are raised, and lowered again,
    under load."""
    nodes = faults.nodes
    if nodes.builds:
        node_id = min(nodes.builds)
        del nodes.builds[node_id]
        await faults.down([node_id])
        return
    image = nodes.image
    if image is None:
        return
    name = faults.rng.choice((GROUPS, TRANSACTIONS, TRANSACTIONS))
    now, level = image.features.get(name, 0), NEWEST[name]
    if now == level:
        if faults.rng.random() >= DOWNGRADE_ODDS:
            return
        level = faults.rng.randrange(level)
    await _ask(faults, to_level(name, level, now))  # when it fails, the next upgrade asks again
