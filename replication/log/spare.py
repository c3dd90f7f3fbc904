"""Room for one snapshot of producers, kept while there is room: a disk that is full can be emptied.

INVARIANT  a snapshot that finds the disk full is written over blocks that are there already, if segments wait for it that are out of
           their log.
PREVENTS   a disk full of what was deleted, none of which may go: what is to stand for it finds no room.
PROVED BY  tests/replication/log/test_spare.py::test_a_full_disk_is_emptied_though_nothing_stands_for_what_was_deleted

It is one file of the node's, in its data folder, as large as the largest snapshot may become. The snapshot takes its place and is renamed,
so nobody else can take those blocks meanwhile. What is left of it is free then, for what a checkpoint has to write.
"""

from typing import Final

from fencepost.cluster.base.ports import Env

from .segment_files import remove_if_there

FILE_NAME: Final = ".spare"  # of no partition: the log store passes it over
BYTES_MIN: Final = 64 * 1024
FREE_BYTES_MIN: Final = 1024 * 1024  # beside it, so that it is never what fills the disk


class Spare:
    """Of one node. `found_room` and `place` are called on the loop, or off it."""

    def __init__(self, env: Env, folder: str) -> None:
        self.is_due = False  # to be made, or to become larger
        self._env = env
        self._folder = folder
        self._path = f"{folder}/{FILE_NAME}"
        self._wanted = 0
        self._there: list[int] = []  # its size: who takes it out has the file

    def may_need(self, size: int) -> None:
        """A snapshot that is yet to be written, for so many bytes."""
        if size > self._wanted:
            self._wanted = max(BYTES_MIN, 1 << (size - 1).bit_length())
            self.is_due = True

    def found_room(self) -> None:
        """A snapshot has: where none does there is none for a spare either."""
        self.is_due = sum(self._there) < self._wanted

    async def keep(self) -> None:
        """If there is more than enough room."""
        self.is_due = False
        self._there.clear()
        try:
            if there := await self._env.disk.run(self._make, self._wanted):
                self._there.append(there)
        except OSError as error:
            self._env.log.warn("spare_not_kept", path=self._path, cause=str(error))

    def _make(self, size: int) -> int:
        """How large it is: a smaller one is better than none."""
        disk = self._env.disk
        there = disk.size(self._path) if disk.exists(self._path) else 0
        if there >= size or disk.free_bytes(self._folder) < size + FREE_BYTES_MIN:
            return there
        try:
            file = disk.open(self._path, create=True)
            try:
                file.truncate(0)
                file.append((bytes(size),))
                file.sync()
            finally:
                file.close()
        except OSError:
            remove_if_there(disk, self._path)
            raise
        return size

    def place(self, path: str, data: bytes) -> bool:
        """Whether it took the data, and has that name now. OSError: neither, and it is not there any more. Blocks."""
        try:
            size = self._there.pop()
        except IndexError:
            return False
        if len(data) > size:
            self._there.append(size)
            return False
        disk = self._env.disk
        file = disk.open(self._path)
        try:
            file.write_at(0, data)
            file.truncate(len(data))
        finally:
            file.close()
        disk.rename(self._path, path)
        return True
