"""Faults of moments and of time: every write of a run in its turn, the order of messages, quartzes that differ."""

import asyncio
import itertools
from typing import TYPE_CHECKING

from .cluster_nodes import node_name

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults


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


async def clock(faults: "ClusterFaults") -> None:
    """Somebody sets the clock of a machine; nobody sets it back."""
    wall = faults.world.machine(node_name(faults.any())).wall
    wall.jump(faults.rng.choice((-1, 1)) * faults.rng.choice((50, 2_000, 60_000, 100_000_000)))
    wall.drift(faults.rng.uniform(-500, 500))


async def drift(faults: "ClusterFaults") -> None:
    """From now on a machine's steady clock goes too fast or too slow: leases and timeouts of two nodes are not the same."""
    machine = faults.world.machine(node_name(faults.rng.choice(faults.nodes.ids)))
    machine.steady.drift(faults.rng.choice((50, 500, 5_000)) * faults.rng.uniform(-1, 1))


async def suspend(faults: "ClusterFaults") -> None:
    """A whole machine stands still, and its steady clock with it: a virtual machine that is moved, a laptop that was shut."""
    node_id = faults.someone()
    if faults.nodes.is_up(node_id) and not faults.nodes.is_paused(node_id):
        await faults.stand_still(node_id, faults.world.suspend)


async def each_write(faults: "ClusterFaults") -> None:
    """One strike a run, right behind one disk operation of one node, when the code that asked for it next waits.

    Which one the seed says: seeds in a row go through the first operations of all nodes, one after the other.
    """
    if faults.is_swept:
        return
    faults.is_swept = True
    ids, seed = faults.nodes.ids, faults.seed
    node_id, operation = ids[seed % len(ids)], 1 + seed // len(ids)
    name = node_name(node_id)
    strikes = (faults.kill_now, faults.power_now, faults.pause_shortly, faults.cut_off)
    strike = strikes[operation % len(strikes)]
    faults.world.at_disk_op(name, operation, lambda: strike(node_id))
    await asyncio.sleep(60.0)  # until the faults are over
