"""A node's folder is put back as it was: a person has a copy, and means well.

Whatever it acknowledged since then is not in it. The others have seen a later life of it, and keep it out: it ends, however
often it is started, until it has an empty disk.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from .cluster_disks import copy_of_disk, is_calm, mend, put_back, until_whole, votes_alone
from .cluster_nodes import node_name

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

LOOK_S: Final = 0.1
MEND_S: Final = 10.0
ENDS_S: Final = 5.0
STARTS: Final = 3


async def put_back_disk(faults: "ClusterFaults") -> None:
    node_id, nodes = faults.rng.choice(faults.nodes.ids), faults.nodes
    if not is_calm(faults, node_id) or votes_alone(faults, node_id):
        return
    faults.is_replacing = True
    try:
        name = node_name(node_id)
        copy = copy_of_disk(faults.world, name)
        await asyncio.sleep(faults.hold())
        faults.kill_now(node_id)
        nodes.start(node_id)
        await until_whole(faults)
        if nodes.not_whole() or not is_calm(faults, node_id):
            return
        await asyncio.sleep(faults.hold())
        faults.hold_down(node_id, 1)
        faults.kill_now(node_id)
        faults.world.trace.event("chaos", "disk-put-back", node=node_id)
        put_back(faults.world, name, copy)
        nodes.rotten = node_id
        for _ in range(faults.rng.randint(1, STARTS)):
            nodes.start(node_id)
            await _until_it_ends(faults, node_id)
        for _ in range(round(MEND_S / LOOK_S)):  # else when all is over
            if not mend(faults):
                break
            await asyncio.sleep(LOOK_S)
        faults.hold_down(node_id, -1)
    finally:
        await until_whole(faults)


async def _until_it_ends(faults: "ClusterFaults", node_id: int) -> None:
    for _ in range(round(ENDS_S / LOOK_S)):
        if not faults.nodes.is_up(node_id):
            return
        await asyncio.sleep(LOOK_S)
    raise AssertionError(f"node {node_id} was let in with its folder of before")
