"""The real disk: `os` calls on the loop's thread where they can't block, small pools of threads where they can."""

import asyncio
import contextlib
import fcntl
import mmap
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from .disk_threads import DiskThreads
from .ports import Buffer, File
from .real_file import RealFile, close_quietly

T = TypeVar("T")

# Concurrent syncs share one commit of the file system's journal; more threads than this gain nothing.
SYNC_THREADS: Final = 8
READ_THREADS: Final = 8
# The page cache holds up to so much as one, and who cuts inside of that makes zeros of the rest of it, also where it is in a
# socket's queue: a table of entries of 8 bytes fills a page. 2 MiB on most machines.
LARGEST_PAGE_BYTES: Final = mmap.PAGESIZE * (mmap.PAGESIZE // 8)


class RealDisk:
    """See `ports.Disk`."""

    cut_bytes = LARGEST_PAGE_BYTES

    def __init__(self) -> None:
        self._syncs = DiskThreads(SYNC_THREADS, "fencepost-sync")
        self._reads = DiskThreads(READ_THREADS, "fencepost-disk")

    def close(self) -> None:
        self._syncs.close()
        self._reads.close()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o644)
        try:
            return RealFile(path, fd)
        except OSError:
            close_quietly(fd)
            raise

    def exists(self, path: str) -> bool:
        """OSError where the disk can't tell: `os.path.exists` says no, and what is there would be begun anew."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_folders(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_all(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: Buffer) -> None:
        self.place(path, data)
        self.sync_folder(os.path.dirname(path))

    def place(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        try:
            _write_whole(temporary, data)
            os.replace(temporary, path)
        except OSError:
            # What is half written would keep the last room of a full disk from all that is still to be written.
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return lambda: close_quietly(fd)  # closing releases it

    async def sync(self, files: Sequence[File]) -> None:
        todo = [cast("RealFile", file) for file in dict.fromkeys(files)]
        if not todo:
            return
        _hold_all(todo)  # whoever closes one meanwhile does not hurt the sync
        if len(todo) == 1:
            found = [await self._syncs.run(_sync_all, todo)]
        else:
            shares = [todo[start::SYNC_THREADS] for start in range(min(SYNC_THREADS, len(todo)))]
            found = await asyncio.gather(*(self._syncs.run(_sync_all, each) for each in shares))
        for error in found:
            if error is not None:
                raise error

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        return cast("T", await self._reads.run(work, *args))

    async def run_aside(self, work: Callable[..., T], *args: Any) -> T:
        return await self.run(work, *args)


def _write_whole(path: str, data: Buffer) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _hold_all(files: Sequence[RealFile]) -> None:
    held: list[RealFile] = []
    try:
        for file in files:
            file.hold()
            held.append(file)
    except OSError:
        for file in held:
            file.release()
        raise


def _sync_all(files: Sequence[RealFile]) -> OSError | None:
    """Sync each, whatever happens to the others; the first error is the answer."""
    first: OSError | None = None
    for file in files:
        try:
            file.sync()
        except OSError as error:
            first = first or error
        finally:
            file.release()
    return first
