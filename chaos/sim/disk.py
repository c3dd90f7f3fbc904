"""The simulated disk: the port of a node onto its machine's file system.

Every change is counted, is an event of the trace, may fail as `DiskFaults` says, and may be the last thing
that the node does (`World.crash_at_disk_op`).
"""

import asyncio
import errno
import os
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar, cast

from fencepost.cluster.base.ports import Buffer, File

from .disk_faults import CHANGES, DiskFaults, Range
from .disk_work import Job
from .file_node import LENT_PAGE
from .filesystem import FileSystem, Folder
from .habits import NAME_BYTES, PLAIN, DiskHabits
from .loop import Incarnation, SimLoop
from .sim_file import SimFile
from .trace import Trace

T = TypeVar("T")

DATA_FOLDER: Final = "/data"


def _nobody_looks(_path: str) -> None: ...


class MachineDisk:
    """What survives the node: its files, its faults, and the count of its operations."""

    def __init__(
        self,
        name: str,
        rng: random.Random,
        aside: random.Random,
        trace: Trace,
        habits: DiskHabits = PLAIN,
    ) -> None:
        self.name = name
        self.rng = rng
        self.aside = aside
        self.trace = trace
        self.habits = habits
        if habits is not PLAIN:
            trace.event(name, "disk.habits", **asdict(habits))
        self.files = FileSystem()
        self.files.make_folder(
            DATA_FOLDER
        )  # a machine comes with it; all below is the node's business
        self.files.sync_folder("/")
        self.faults = DiskFaults()
        self.locks: dict[str, Incarnation] = {}
        self.failed: set[int] = set()  # with which errors it has
        self.operations = 0
        self.on_operation: Callable[[int], None] | None = None
        self.on_create: Callable[[str], None] = _nobody_looks  # with the path of a file

    def fingerprint(self) -> str:
        """A checksum of all that is there: what a crash left is part of the trace."""
        crc = 0
        for path, node in self.files.files():
            crc = zlib.crc32(node.content, zlib.crc32(path.encode(), crc))
        return f"{crc:08x}"

    def fails_with(self, error: OSError) -> OSError:
        """Told to the node. What ends that for an error which no disk of its made is a fault of its own."""
        assert error.errno is not None, "the errors of a disk have numbers"
        self.failed.add(error.errno)
        return error

    def is_folder(self, path: str) -> bool:
        return isinstance(self.files.find(path), Folder)

    def flip_bits(self, path: str, count: int = 1) -> None:
        """Media rot: `count` random bits of a file change, in the cache too."""
        node = self.files.file(path)
        for _ in range(count):
            if node.content:
                node.flip(self.rng.randrange(len(node.content)), self.rng.randrange(8))
        self.trace.event(self.name, "disk.flip", path=path, count=count)


class SimDisk:
    """See `ports.Disk`."""

    cut_bytes = LENT_PAGE

    def __init__(self, machine: MachineDisk, incarnation: Incarnation) -> None:
        self.machine = machine
        self.incarnation = incarnation
        self._files = machine.files
        self._at_work = False  # a piece of work off the loop is being done
        self._syncs_s = 0.0  # and its syncs take so long

    def attempt(self, kind: str, path: str, **fields: object) -> None:
        """Before an operation: is there still a node, and does the disk do it?"""
        self.incarnation.check()
        machine = self.machine
        error = machine.faults.error_of(kind, path, machine.rng)
        if error is None and kind in ("create", "rename") and self._has_no_room():
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if error is not None:
            machine.trace.event(
                machine.name, f"disk.{kind}", path=path, failed=error.errno, **fields
            )
            self.count(kind)
            try:
                raise machine.fails_with(error)
            finally:
                del error  # it holds this frame, and who called it what it had open, until Python's collector comes
        if kind in CHANGES:
            machine.trace.event(machine.name, f"disk.{kind}", path=path, **fields)

    def _has_no_room(self) -> bool:
        """For a new name."""
        capacity = self._files.capacity
        is_full = capacity is not None and self._files.used + NAME_BYTES > capacity
        return is_full and self.machine.habits.names_need_room

    def wait(self) -> None:
        """Behind a sync that its caller waits for, in the loop's place or in a thread's."""
        if not self.machine.habits.syncs_wait:
            return
        seconds = self.machine.faults.sync_delay(self.machine.rng)
        if self._at_work:
            self._syncs_s += seconds
        else:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimLoop)
            loop.keep_waiting(self.incarnation, seconds)

    def count(self, kind: str) -> None:
        """After it: this may have been the node's last."""
        if kind not in CHANGES:
            return
        machine = self.machine
        machine.operations += 1
        if machine.on_operation is not None:
            machine.on_operation(machine.operations)
        self.incarnation.check()

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.attempt("open", path)
        found = self._files.find(path)
        if found is None and create:
            self._files.parent(path)
            self.attempt("create", path)
            self.machine.on_create(path)
            node = self._files.create(path)
            self.count("create")
        else:
            node = self._files.file(path)
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        self.incarnation.check()
        return self._files.find(path) is not None

    def size(self, path: str) -> int:
        self.incarnation.check()
        return len(self._files.file(path).content)

    def list(self, path: str) -> list[str]:
        self.incarnation.check()
        if self._files.find(path) is None:
            return []
        return sorted(self._files.folder(path).names)

    def make_folders(self, path: str) -> None:
        made = ""
        for part in path.split("/"):
            if part:
                made = f"{made}/{part}"
                if not isinstance(self._files.find(made), Folder):
                    self.attempt("create", made)
                    self._files.make_folder(made)
                    self.count("create")

    def remove(self, path: str) -> None:
        self.attempt("remove", path)
        self._files.remove(path)
        self.count("remove")

    def remove_tree(self, path: str) -> None:
        self.incarnation.check()
        folder = self._files.folder(path)
        for name, node in sorted(folder.names.items()):
            if isinstance(node, Folder):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.attempt("remove", path)
        self._files.remove_tree(path)
        self.count("remove")

    def rename(self, source: str, target: str) -> None:
        self.attempt("rename", source, target=target)
        self._files.rename(source, target)
        self.count("rename")

    def sync_folder(self, path: str) -> None:
        self.attempt("sync_folder", path)
        self._files.sync_folder(path)
        self.count("sync_folder")
        self.wait()

    def read_all(self, path: str) -> bytes:
        self.attempt("read", path)
        return bytes(self._files.file(path).content)

    def replace(self, path: str, data: Buffer) -> None:
        self.place(path, data)
        self.sync_folder(path.rpartition("/")[0] or "/")

    def place(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append((data,))
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)

    def free_bytes(self, path: str) -> int:
        self.incarnation.check()
        return max(0, self.total_bytes(path) - self._files.used)

    def total_bytes(self, path: str) -> int:
        self.incarnation.check()
        capacity = self._files.capacity
        return 1 << 40 if capacity is None else capacity

    def lock(self, path: str) -> Callable[[], None]:
        self.incarnation.check()
        holder = self.machine.locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, "the lock is held", path)
        self.open(path, create=True).close()
        self.machine.locks[path] = self.incarnation
        return lambda: self._unlock(path)

    def _unlock(self, path: str) -> None:
        if self.machine.locks.get(path) is self.incarnation:
            del self.machine.locks[path]

    async def sync(self, files: Sequence[File]) -> None:
        """Takes virtual time. What is written meanwhile is not promised to be in it."""
        self.incarnation.check()
        todo = [(cast(SimFile, file), cast(SimFile, file).mark()) for file in dict.fromkeys(files)]
        if not todo:
            return
        await asyncio.sleep(self.machine.faults.sync_delay(self.machine.rng))
        first: OSError | None = None
        for file, mark in todo:
            try:
                file.sync_to(mark)
            except OSError as error:
                first = first or error
        if first is not None:
            try:
                raise first
            finally:
                del first

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        machine = self.machine
        return await self._run(machine.rng, machine.habits.run_s, work, *args)

    async def run_aside(self, work: Callable[..., T], *args: Any) -> T:
        return await self._run(self.machine.aside, None, work, *args)

    async def _run(
        self, rng: random.Random, run_s: Range | None, work: Callable[..., T], *args: Any
    ) -> T:
        self.incarnation.check()
        seconds = rng.uniform(*(run_s or self.machine.faults.run_s))
        if self.machine.habits.has_threads:
            done_after_s = rng.choice((0.0, 1.0, rng.random())) * seconds
            job = Job(lambda: self.do(partial(work, *args)))
            return cast("T", await job.begin(done_after_s, seconds))
        await asyncio.sleep(seconds)
        result, syncs_s = self.do(partial(work, *args))
        if syncs_s:
            await asyncio.sleep(syncs_s)
        return result

    def do(self, work: Callable[[], T]) -> tuple[T, float]:
        """Work off the loop: what it came to, and how long its syncs take."""
        self._at_work, self._syncs_s = True, 0.0
        try:
            result = work()
        finally:
            self._at_work = False
        return result, self._syncs_s
