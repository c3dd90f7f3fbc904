"""Faults of disks: full, failing, slow; replaced by an empty one; files that rot.

A bit that flips in a log, or in the journal of the metadata, is damage: the node has to name it, and to end, or to take the
replica out of use; nobody may come to believe it. Then a person gives the node an empty disk, when others have all that
it had, and the cluster fills it. What is derived from the logs (`DERIVED`) must be seen or not be needed; nobody mends it.
"""

import asyncio
import contextlib
import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import PartitionState, TopicState

from .cluster_admin import CHURNED
from .cluster_nodes import node_name
from .loop import NodeDown
from .world import World

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

WHOLE_S: Final = 20.0
LOOK_S, MEND_S = 0.1, 10.0
# What a log can be read without: derived from it, or with a copy of what it says.
DERIVED: Final = (".index", ".timeindex", ".txnindex", ".producers", "leader-epoch-checkpoint")
METADATA: Final = "/data/metadata/"


# --- for a while ----------------------------------------------------------------------------------


async def full_disk(faults: "ClusterFaults") -> None:
    files = faults.world.disk(node_name(faults.someone())).files
    files.capacity = files.used + faults.rng.randint(0, 3000)
    await asyncio.sleep(faults.hold())
    files.capacity = None


async def failing_disk(faults: "ClusterFaults") -> None:
    """One operation fails with EIO. Whatever gave up on it needs the restart that an operator would do."""
    node_id = faults.someone()
    wrong = faults.world.disk(node_name(node_id)).faults
    kind = faults.rng.choice(("sync", "append", "sync_folder", "rename", "create"))
    path = faults.rng.choice(("*", "*.log", "/data/metadata/*"))
    wrong.fail(kind, path=path, number=errno.EIO)
    await asyncio.sleep(faults.hold())
    wrong.planned.clear()
    faults.kill_now(node_id)


async def failing_files(faults: "ClusterFaults") -> None:
    """What is seldom seen to fail: reads, some of them or one, and opening, cutting, removing, writing over. A person restarts
    the node in the end."""
    node_id = faults.someone()
    wrong = faults.world.disk(node_name(node_id)).faults
    kind = faults.rng.choice(("reads", "read", "open", "truncate", "remove", "write_at"))
    path = faults.rng.choice(("*", "*.log", "*index", "/data/metadata/*"))
    if kind == "reads":
        wrong.read_error_odds = faults.rng.choice((0.02, 0.3))
    else:
        wrong.fail(kind, path=path, times=faults.rng.choice((1, 1, 3)))
    await asyncio.sleep(faults.hold())
    wrong.read_error_odds = 0.0
    wrong.planned.clear()
    faults.kill_now(node_id)


async def failing_log(faults: "ClusterFaults") -> None:
    """A sync or a write of one partition fails, and its node lives on: the others have to take over."""
    node_id = faults.leader()
    name = node_name(node_id)
    wrong = faults.world.disk(name).faults
    logs = sorted(map(str, faults.nodes.broker(node_id).replicas.partitions))
    if not faults.nodes.is_up(node_id) or not logs:
        return
    kind = faults.rng.choice(("sync", "append"))
    wrong.fail(kind, path=f"/data/{faults.rng.choice(logs)}/*.log")
    await asyncio.sleep(faults.hold())
    wrong.planned.clear()
    if faults.rng.random() < 0.5:
        faults.kill_now(node_id)


async def slow_disk(faults: "ClusterFaults") -> None:
    wrong = faults.world.disk(node_name(faults.someone())).faults
    wrong.slow_sync_odds = faults.rng.choice((0.02, 0.2, 1.0))
    wrong.slow_sync_s = faults.rng.choice(((0.02, 0.2), (0.5, 5.0)))
    await asyncio.sleep(faults.hold())
    wrong.slow_sync_odds = 0.0


# --- replaced -------------------------------------------------------------------------------------


async def replace_disk(faults: "ClusterFaults") -> None:
    """A machine comes back with an empty disk, when the others have all that it had; the next only when all is whole."""
    node_id = faults.rng.choice(faults.nodes.ids)
    if not is_calm(faults, node_id) or votes_alone(faults, node_id):
        return
    faults.is_replacing = True
    _replace(faults, node_id)
    await until_whole(faults)


def is_calm(faults: "ClusterFaults", node_id: int) -> bool:
    if faults.is_replacing or faults.nodes.not_whole():
        return False
    return not any(
        state.replicas == (node_id,) or tuple(state.isr) == (node_id,)
        for _, state in _held_by(faults, node_id)
    )


def votes_alone(faults: "ClusterFaults", node_id: int) -> bool:
    """With its disk all metadata would be lost: nobody else ever had to have it."""
    return set(faults.nodes.broker(node_id).quorum.voters) == {node_id}


def _held_by(faults: "ClusterFaults", node_id: int) -> Iterator[tuple[TopicState, PartitionState]]:
    image = faults.nodes.image
    assert image is not None
    return image.partitions_of(BrokerId(node_id))


def empty_disk(world: World, name: str) -> None:
    """The machine has another disk, on which there is nothing."""
    for look in world.on_emptied:
        look(name)
    with contextlib.suppress(NodeDown):  # this is not code of that node
        _remove_all(world, name)
        return
    _remove_all(world, name)  # a fault that waited for a write has struck meanwhile


def copy_of_disk(world: World, name: str) -> dict[str, bytes]:
    """What a person would put aside: path -> what is in it."""
    return {path: bytes(node.content) for path, node in world.disk(name).files.files()}


def put_back(world: World, name: str, copy: dict[str, bytes]) -> None:
    """The node is down, and what it has written since the copy was made is gone."""
    empty_disk(world, name)
    disk = world.restart(name).disk
    for path, data in copy.items():
        disk.make_folders(path.rpartition("/")[0])
        disk.replace(path, data)
    world.kill(name)


def _remove_all(world: World, name: str) -> None:
    world.disk(name).faults.heal()  # they were the old one's
    disk = world.restart(name).disk
    for each in disk.list("/data"):
        path = f"/data/{each}"
        if world.disk(name).is_folder(path):
            disk.remove_tree(path)
        else:
            disk.remove(path)


def _replace(faults: "ClusterFaults", node_id: BrokerId) -> None:
    empty_disk(faults.world, node_name(node_id))
    faults.nodes.emptied.add(node_id)
    faults.world.trace.event("chaos", "disk-replaced", node=node_id)
    faults.nodes.start(node_id)


async def until_whole(faults: "ClusterFaults") -> None:
    try:
        await faults.nodes.until_whole(WHOLE_S)
    except AssertionError:
        pass  # other faults keep it from that
    finally:
        faults.is_replacing = bool(faults.nodes.not_whole())
        if not faults.is_replacing:
            faults.nodes.emptied.clear()  # and what is lost from here on has to be explained


# --- rot ------------------------------------------------------------------------------------------


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


async def rotten_log(faults: "ClusterFaults") -> None:
    """Bits flip in a log, in the metadata's journal, or in any file, while the node is down or under its hands."""
    node_id = faults.rng.choice(faults.nodes.ids)
    if not is_calm(faults, node_id):
        return
    faults.is_replacing = True
    faults.nodes.rots(node_id)
    name = node_name(node_id)
    how = faults.rng.choice(("alive", "killed", "powerless"))
    if how == "killed":
        faults.world.kill(name)
    elif how == "powerless":
        faults.world.crash(name, torn=faults.rng.random() < 0.5)
    _flip(faults, name)
    if how != "alive":
        faults.nodes.start(node_id)
    await asyncio.sleep(faults.hold())
    for _ in range(round(MEND_S / LOOK_S)):  # else when all is over
        if not mend(faults):
            break
        await asyncio.sleep(LOOK_S)
    await until_whole(faults)


def _flip(faults: "ClusterFaults", name: str) -> None:
    disk = faults.world.disk(name)
    paths = [path for path, node in disk.files.files() if node.content]
    wanted = faults.rng.choice((".log", ".log", METADATA, ""))
    found = [path for path in paths if path.endswith(wanted) or path.startswith(wanted)]
    if found:
        disk.flip_bits(faults.rng.choice(found), faults.rng.choice((1, 1, 1, 8)))


def _is_led_without(faults: "ClusterFaults", node_id: int) -> bool:
    """Of two voters neither is: nobody can be ready, and a person goes by what the damaged one said, that the others must be
    well. What was agreed on both had, so that the one that is left knows all of it."""
    others = [each for each in faults.nodes.ids if each != node_id and faults.nodes.is_up(each)]
    voters = [faults.nodes.broker(each).quorum.voters for each in others]
    return all(2 * len([each for each in some if each != node_id]) > len(some) for some in voters)


def mend(faults: "ClusterFaults") -> str:
    """The rotten disk is replaced as soon as others have all that it had. Why not yet; empty when there is none."""
    rotten, nodes = faults.nodes.rotten, faults.nodes
    if rotten is None:
        return ""
    if why := nodes.unfound():
        return why
    others = [each for each in nodes.ids if each != rotten]
    well = nodes.ready() if _is_led_without(faults, rotten) else list(filter(nodes.is_up, others))
    if late := [each for each in others if each not in well]:
        return f"the disk of node {rotten} has rotted, and {late} are not ready to stand in"
    for topic, state in _held_by(faults, rotten):
        # Asked for before the disk rotted, and made since: nobody writes to it, and a person gives it up.
        if topic.name in CHURNED and state.replicas == (rotten,):
            continue
        keep = [each for each in (*state.isr, *state.elr) if each in others]
        if not keep and (rotten in state.isr or rotten in state.elr):
            return f"the disk of node {rotten} has rotted, and only it has all of {state}"
    nodes.rotten, nodes.unfound = None, lambda: ""
    _replace(faults, rotten)
    return ""
