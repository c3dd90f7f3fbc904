"""Whether the data folder's disk takes writes, also when nobody has anything to write.

INVARIANT  a disk that was full is called so until something was written on it: a batch, or a small file made for that.
PREVENTS   a node that has had room for hours and is not ready, since nobody writes to one that is not ready.
PROVED BY  tests/replication/test_disk_room.py::test_a_disk_with_room_again_is_told_when_nobody_writes

Whoever writes finds out himself, so nothing is tried while batches are refused. A file, as free bytes alone don't show a
quota; and it is written only where more bytes are free than it takes, so that it is never what fills the disk.
"""

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.ports import Disk, Env

from .log.segment_files import remove_if_there

FILE_NAME: Final = ".room"  # of no partition: the log store passes it over
LOOK_S: Final = 2.0
TRIED: Final = bytes(64 * 1024)
# Less is no room: one batch may be so large (`max.message.bytes`), and would be refused again.
ROOM_BYTES_MIN: Final = 1024 * 1024


class DiskRoom:
    """Of one node. `watch` runs beside its checkpoints."""

    def __init__(self, env: Env, folder: str) -> None:
        self.is_full = False
        self.when_room: list[Callable[[], None]] = []  # whom to tell that there is some again
        self._env = env
        self._folder = folder
        self._refused = 0  # writes
        self._looks = asyncio.Event()

    def refused(self, error: OSError) -> None:
        """A write, for want of space."""
        self._refused += 1
        if not self.is_full:
            self.is_full = True
            self._env.log.error("disk_full", folder=self._folder, cause=str(error))
        # What one file must not outgrow a small one does not show: that holds until a batch is taken. It is a limit of the process,
        # so no room is made while it runs.
        if error.errno != errno.EFBIG:
            self._looks.set()

    def written(self) -> None:
        if self.is_full:
            self.is_full = False
            self._looks.clear()
            self._env.log.info("disk_has_space_again")
            for tell in self.when_room:
                tell()

    async def watch(self) -> None:
        path = f"{self._folder}/{FILE_NAME}"
        if self._env.disk.exists(path):  # a kill left it
            await self._works(remove_if_there, path)
        while True:
            await self._looks.wait()
            refused = self._refused
            await self._env.clock.sleep(LOOK_S)
            if refused == self._refused and self._looks.is_set():
                has_room = await self._works(_write, path)
                if has_room and refused == self._refused:
                    self.written()

    async def _works(self, work: Callable[[Disk, str], None], path: str) -> bool:
        try:
            await self._env.disk.run(work, self._env.disk, path)
        except OSError:  # the next look tries again
            return False
        return True


def _write(disk: Disk, path: str) -> None:
    """Durably, and away with it. OSError: there is no room yet, or nobody can say."""
    folder = path.rpartition("/")[0]
    if disk.free_bytes(folder) < ROOM_BYTES_MIN:
        raise OSError(errno.ENOSPC, "too few bytes are free", folder)
    if disk.exists(path):
        disk.remove(path)  # an old one that is written over takes no room
    try:
        file = disk.open(path, create=True)
        try:
            file.append((TRIED,))
            file.sync()
        finally:
            file.close()
    finally:
        remove_if_there(disk, path)
