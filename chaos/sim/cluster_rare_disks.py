"""Disks in the trouble that is seldom tested: what follows a full one, a file system that went read-only, no descriptors left.

All but `full-for-long` are on top in some seeds (`ON_TOP`), by dice of their own.
"""

import asyncio
import errno
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.ids import BrokerId

from .cluster_nodes import node_name
from .disk_faults import DiskFaults

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

MANY: Final = 1_000_000  # until it is taken back
CHANGING: Final = ("create", "append", "write_at", "truncate", "remove", "rename")
ROOM_BYTES: Final = 3000
FULL_FOR_S: Final = 15.0  # longer than any client may wait: others have to take the writes
SOON_S: Final = (0.0, 0.0, 0.05, 0.5)


async def full_then_power(faults: "ClusterFaults") -> None:
    """Full for a while, and what was half written perhaps not cut off either; soon after there is room the power goes, or goes
    while it is full: halves that were not synced away are back."""
    node_id = faults.someone()
    disk = faults.world.disk(node_name(node_id))
    disk.files.capacity = disk.files.used + faults.rng.randint(0, ROOM_BYTES)
    if faults.rng.random() < 0.5:
        disk.faults.fail("truncate", number=errno.EIO, times=faults.rng.choice((1, MANY)))
    await asyncio.sleep(faults.hold())
    if faults.rng.random() < 0.7:
        disk.files.capacity = None
        disk.faults.planned.clear()
        await asyncio.sleep(faults.rng.choice(SOON_S) * faults.rng.random())
    faults.power_now(node_id)
    disk.files.capacity = None
    disk.faults.planned.clear()


async def full_for_long(faults: "ClusterFaults") -> None:
    """Nobody makes room on a leader's disk for longer than its clients may wait."""
    files = faults.world.disk(node_name(faults.leader())).files
    files.capacity = files.used + faults.rng.randint(0, ROOM_BYTES)
    await asyncio.sleep(FULL_FOR_S)
    files.capacity = None


async def full_at_a_sync(faults: "ClusterFaults") -> None:
    """Writes are taken, and the sync finds no room for them: delayed allocation, quotas, NFS. A person restarts the node, or
    it goes on."""
    node_id = faults.someone()
    wrong = faults.world.disk(node_name(node_id)).faults
    number = faults.rng.choice((errno.ENOSPC, errno.EDQUOT))
    path = faults.rng.choice(("*", "*.log", "/data/metadata/*"))
    wrong.fail("sync", path=path, number=number, times=faults.rng.choice((1, 3, MANY)))
    await asyncio.sleep(faults.hold())
    wrong.planned.clear()
    await _maybe_restarted(faults, node_id)


async def read_only(faults: "ClusterFaults") -> None:
    """The file system has gone read-only under the node, as Linux does after an error; a person mounts it again, and restarts
    the node. What starts meanwhile finds it so."""
    node_id = faults.someone()
    wrong = faults.world.disk(node_name(node_id)).faults
    _refuse(wrong, CHANGING, errno.EROFS)
    _refuse(wrong, ("sync", "sync_folder"), faults.rng.choice((errno.EIO, errno.EROFS)))
    await asyncio.sleep(faults.hold())
    wrong.planned.clear()
    _strike_down(faults, node_id)


async def no_descriptors(faults: "ClusterFaults") -> None:
    """Nothing can be opened or made for a while, by this process or any on the machine; then it can, and the node goes on."""
    node_id = faults.someone()
    wrong = faults.world.disk(node_name(node_id)).faults
    _refuse(wrong, ("open", "create"), faults.rng.choice((errno.EMFILE, errno.ENFILE)))
    if faults.rng.random() < 0.3:
        _strike_down(faults, node_id)
    await asyncio.sleep(faults.hold())
    wrong.planned.clear()
    await _maybe_restarted(faults, node_id)


def _strike_down(faults: "ClusterFaults", node_id: BrokerId) -> None:
    strike = faults.rng.choice((faults.kill_now, faults.power_now))
    strike(node_id)


def _refuse(wrong: DiskFaults, kinds: tuple[str, ...], number: int) -> None:
    for kind in kinds:
        wrong.fail(kind, number=number, times=MANY)


async def _maybe_restarted(faults: "ClusterFaults", node_id: BrokerId) -> None:
    if faults.rng.random() < 0.6:
        await asyncio.sleep(faults.rng.choice(SOON_S) * faults.rng.random())
        _strike_down(faults, node_id)
