"""Bits of a log flip while its node is stopped, after a stop that was clean: the next start trusts what it does not read.

INVARIANT  what has flipped so is found by the node itself, and named, before anybody mends it.
PREVENTS   a cluster that is called whole with a replica in it that nobody has read since it rotted.
PROVED BY  tests/sim/test_cluster_rot.py::test_a_node_that_never_reads_its_logs_again_is_not_let_off
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.wire.batch import BatchHeader, BatchRefused, headers_of

from .cluster_disks import METADATA, is_calm, mend, until_whole
from .cluster_nodes import node_name
from .file_node import FileNode
from .world import NodeLost

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

STOP_S: Final = 10.0
LOOK_S, FOUND_S = 0.1, 20.0
# Of a batch no checksum covers its leader epoch, and one that lies between its neighbours' is as good as another.
EPOCH_AT: Final = range(12, 16)


class Rotten(NamedTuple):
    """One batch of a log, in the file that it was in; a bit of it has flipped."""

    node_id: BrokerId
    partition: TopicPartition
    path: str
    position: int
    batch: BatchHeader

    def __str__(self) -> str:
        return f"{self.path} at {self.position}, offset {self.batch.base_offset}"


async def rotten_stopped(faults: "ClusterFaults") -> None:
    node_id = faults.rng.choice(faults.nodes.ids)
    if not is_calm(faults, node_id) or faults.nodes.is_paused(node_id):
        return
    faults.is_replacing = True
    faults.nodes.rots(node_id)
    env = faults.world.node(node_name(node_id))
    faults.hold_down(node_id, 1)
    try:
        async with asyncio.timeout(STOP_S):
            await faults.nodes.stop(node_id)
    except (TimeoutError, NodeLost):
        pass  # something else has ended it: then the start knows more
    finally:
        if env.incarnation.alive:
            faults.kill_now(node_id)
        flip(faults, node_id)
        faults.hold_down(node_id, -1)
    faults.nodes.start(node_id)
    for _ in range(round(FOUND_S / LOOK_S)):  # else when all is over
        if not mend(faults):
            break
        await asyncio.sleep(LOOK_S)
    await until_whole(faults)


def flip(faults: "ClusterFaults", node_id: BrokerId) -> None:
    """One bit of one batch; who mends asks from now on whether it was found."""
    disk = faults.world.disk(node_name(node_id))
    found = []
    for path, node in disk.files.files():
        name = path.split("/")[-2]
        if path.endswith(".log") and not path.startswith(METADATA) and node.content:
            topic, _, index = name.rpartition("-")
            if index.isdigit():
                place = TopicPartition(topic, int(index))
                with contextlib.suppress(BatchRefused):  # its machine went down while it wrote
                    batches = headers_of(bytes(node.content))
                    found += [Rotten(node_id, place, path, *each) for each in batches]
    if not found:
        return
    rotten = faults.rng.choice(found)
    at = faults.rng.choice([at for at in range(rotten.batch.size) if at not in EPOCH_AT])
    node = disk.files.file(rotten.path)
    node.flip(rotten.position + at, faults.rng.randrange(8))
    faults.world.trace.event(disk.name, "disk.flip", path=rotten.path, at=rotten.position + at)
    faults.nodes.unfound = lambda: unfound(faults, rotten)


def unfound(faults: "ClusterFaults", rotten: Rotten) -> str:
    """Why nobody can go on as if it were found; empty if it was, or if it is gone."""
    file = faults.world.disk(node_name(rotten.node_id)).files.find(rotten.path)
    start = rotten.position
    if not isinstance(file, FileNode) or not any(
        start <= position < start + rotten.batch.size for position, _ in file.flips
    ):
        return ""
    told = f"a bit of {rotten} has flipped on node {rotten.node_id}, which has not found it"
    if rotten.node_id not in faults.nodes.ready():
        return told
    manager = faults.nodes.broker(rotten.node_id).replicas
    partition = manager.partitions.get(rotten.partition)
    if rotten.partition in manager.offline or (partition is not None and partition.log.damage):
        return ""
    if partition is None:
        state = manager.image.partition(*rotten.partition)  # moved away: nobody reads the folder
        return told if state is not None and rotten.node_id in state.replicas else ""
    return "" if partition.log_start_offset >= rotten.batch.next_offset else told
