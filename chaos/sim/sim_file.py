"""A file of a simulated disk, as its node has it open: writes that fail half-way, and syncs that are never believed again."""

import errno
import os
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.cluster.base.ports import Buffer

from .file_node import FileNode, Lent, Write

if TYPE_CHECKING:
    from .disk import SimDisk


class SimFile:
    """See `ports.File`."""

    def __init__(self, disk: "SimDisk", path: str, node: FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._open = True
        self._sync_failed = False
        node.opens += 1

    def _check(self) -> None:
        self._disk.incarnation.check()
        if not self._open:
            raise OSError(errno.EBADF, "the file is closed", self.path)

    def size(self) -> int:
        return len(self._node.content)

    def mark(self) -> int:
        self._check()
        return self._node.mark()

    def append(self, chunks: Sequence[Buffer]) -> None:
        data = b"".join(chunks)
        self._write("append", self.size(), data)

    def write_at(self, position: int, data: Buffer) -> None:
        if data:
            self._write("write_at", position, bytes(data))
        else:
            self._check()

    def _write(self, kind: str, position: int, data: bytes) -> None:
        self._check()
        files = self._disk.machine.files
        grows = max(0, position + len(data) - self.size())
        if files.capacity is not None and grows and files.used + grows > files.capacity:
            self._disk.machine.trace.event(
                self._disk.machine.name, "disk.full", path=self.path, size=len(data)
            )
            self._half_written(position, data)
            # With a name in this frame it would hold itself, and with it this file, open for ever.
            raise self._disk.machine.fails_with(
                OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            )
        try:
            self._disk.attempt(kind, self.path, at=position, size=len(data), crc=zlib.crc32(data))
        except OSError:
            self._half_written(position, data)
            raise
        files.used += grows
        self._node.change(Write(position, data))
        self._disk.count(kind)

    def _half_written(self, position: int, data: bytes) -> None:
        """A failed write leaves something, which is cut off again; after a crash it may be back. Where it can't be cut off it
        stays, and the file is closed, as by the real one, and the error is that of the cut."""
        old_size, machine = self.size(), self._disk.machine
        if position < old_size:
            return
        some = machine.rng.randint(0, len(data))
        self._node.change(Write(position, data[:some]))
        if (error := machine.faults.planned_error("truncate", self.path)) is not None:
            machine.trace.event(machine.name, "disk.half", path=self.path, size=some)
            machine.files.used += some
            self.close()
            try:
                raise machine.fails_with(error)
            finally:
                del error  # as in `SimDisk.attempt`
        self._node.change(Write(old_size, None))

    def read(self, position: int, length: int) -> bytes:
        self._check()
        self._disk.attempt("read", self.path)
        self._node.cold = False
        return bytes(self._node.content[position : position + length])

    def read_cached(self, position: int, length: int) -> bytes | None:
        self._check()
        if position >= self.size() or length <= 0:
            return b""
        machine = self._disk.machine
        cold_odds = max(machine.faults.cold_odds, machine.habits.cold_odds)
        if self._node.cold or (cold_odds and machine.rng.random() < cold_odds):
            return None
        return self.read(position, length)

    def lend(self, position: int, length: int) -> Lent:
        """What was read is sent, and is not copied."""
        return self._node.lend(position, length)

    def read_once(self, position: int, length: int) -> bytes:
        was_cold = self._node.cold
        data = self.read(position, length)
        self._node.cold = was_cold
        return data

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.attempt("truncate", self.path, size=size)
        node = self._node
        self._disk.machine.files.used += size - len(node.content)
        node.change(Write(size, None))
        self._disk.count("truncate")

    def sync(self) -> None:
        self.sync_to(self.mark())
        self._disk.wait()

    def sync_to(self, mark: int) -> None:
        """A failure is remembered, as by the real file; what it lost stays lost."""
        self._disk.incarnation.check()
        if self._sync_failed:
            raise OSError(errno.EIO, "an earlier sync of this file failed", self.path)
        try:
            self._disk.attempt("sync", self.path)
        except OSError:
            self._sync_failed = True
            self._node.lose(mark)
            raise
        self._node.make_durable(mark)
        self._disk.count("sync")

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._disk.incarnation.alive:
            self._node.opens -= 1
            self._disk.machine.files.forget(self._node)
