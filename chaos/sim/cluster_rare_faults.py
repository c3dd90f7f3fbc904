"""Faults that change what a cluster is made of, or what it believes: voters, disks, files that rot, the order of messages."""

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ids import BrokerId

from .cluster_nodes import PEER_PORT, node_name
from .world import NodeLost

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

VOTERS_MIN: Final = 2
CHANGE_S: Final = 4.0
WHOLE_S: Final = 20.0
# What a log can be read without: derived from it, or with a copy of what it says.
DERIVED: Final = (".index", ".timeindex", ".txnindex", ".producers", "leader-epoch-checkpoint")


async def reorder(faults: "ClusterFaults") -> None:
    """On every link some bytes are late, so that what is said on two connections comes in any order."""
    late_s = faults.rng.choice((0.02, 0.1, 0.5))
    net = faults.world.net
    links = [
        net.link(*pair)
        for pair in itertools.permutations([*faults.nodes.names, *faults.clients], 2)
    ]
    for link in links:
        link.spike_odds, link.spike_s = 0.3, (0.0, late_s)
    await asyncio.sleep(faults.hold())
    for link in links:
        link.spike_odds, link.spike_s = net.link_default.spike_odds, net.link_default.spike_s


async def change_voters(faults: "ClusterFaults") -> None:
    """One voter less, or one more."""
    controller = faults.nodes.controller()
    if controller is None:
        return
    quorum = faults.nodes.broker(controller).quorum
    voters = sorted(quorum.voters)
    others = [each for each in faults.nodes.ids if each not in voters]
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


async def replace_disk(faults: "ClusterFaults") -> None:
    """A machine comes back with an empty disk, when the others have all that it had; the next only when all is whole."""
    node_id = faults.rng.choice(faults.nodes.ids)
    if faults.is_replacing or faults.nodes.not_whole() or _is_the_only_copy(faults, node_id):
        return
    faults.is_replacing = True
    name = node_name(node_id)
    faults.world.kill(name)
    env = faults.world.restart(name)
    for each in env.disk.list("/data"):
        path = f"/data/{each}"
        if faults.world.disk(name).is_folder(path):
            env.disk.remove_tree(path)
        else:
            env.disk.remove(path)
    faults.nodes.start(node_id)
    try:
        await faults.nodes.until_whole(WHOLE_S)
    except AssertionError:
        pass  # other faults keep it from that
    finally:
        faults.is_replacing = bool(faults.nodes.not_whole())


def _is_the_only_copy(faults: "ClusterFaults", node_id: int) -> bool:
    image = faults.nodes.image
    assert image is not None
    return any(
        state.replicas == (node_id,) or tuple(state.isr) == (node_id,)
        for topic in image.topics.values()
        for state in topic.partitions
        if node_id in state.replicas
    )


async def rotten_file(faults: "ClusterFaults") -> None:
    """A bit flips in an index, a snapshot or a checkpoint while its node is down: that must be seen, or not be needed."""
    name = node_name(faults.rng.choice(faults.nodes.ids))
    if not faults.world.is_up(name):
        return
    faults.world.kill(name)
    disk = faults.world.disk(name)
    paths = [path for path, node in disk.files.files() if path.endswith(DERIVED) and node.content]
    if paths:
        disk.flip_bits(faults.rng.choice(paths), faults.rng.choice((1, 1, 4)))
