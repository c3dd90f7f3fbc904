"""One open file of the real disk.

INVARIANT  a file descriptor is closed only when nobody reads or syncs it: `close` waits for its last user.
PREVENTS   a read on another thread, or a reply on its way to the socket, hitting a number that by now
           belongs to another file.
PROVED BY  tests/cluster/base/test_real_disk.py::test_a_closed_file_stays_readable_for_who_holds_it
"""

import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from typing import Final

from .ports import Buffer

IOV_MAX: Final = 1024  # Linux's UIO_MAXIOV
READ_MAX: Final = 1 << 30  # Linux moves at most 2 GiB in a call
PROBE_STEP: Final = 64 * 1024
_PROBE: Final = (bytearray(1),)  # what it reads into; nobody looks at it
# Answers of a kernel or file system that has no RWF_NOWAIT for reads.
NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def _closed(path: str) -> OSError:
    return OSError(errno.EBADF, "the file is closed", path)


class RealFile:
    """See `ports.File`. Appends and truncations come from the loop's thread only; reads and syncs from any."""

    __slots__ = (
        "_closing",
        "_fd",
        "_lock",
        "_size",
        "_sync_failed",
        "_sync_turn",
        "_users",
        "path",
    )

    nowait_works = hasattr(os, "RWF_NOWAIT")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._lock = threading.Lock()
        self._users = 0
        self._closing = False
        self._sync_failed: OSError | None = None
        self._sync_turn = threading.Lock()

    def size(self) -> int:
        return self._size

    def fileno(self) -> int:
        if self._fd < 0 or (self._closing and not self._users):
            raise _closed(self.path)
        return self._fd

    # Who uses the descriptor beyond one call.

    def hold(self) -> None:
        """Keep the descriptor open until `release`, whatever happens to the file's name."""
        with self._lock:
            if self._fd < 0 or (self._closing and not self._users):
                raise _closed(self.path)
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._closing and not self._users:
                self._close_fd()

    def close(self) -> None:
        with self._lock:
            self._closing = True
            if not self._users:
                self._close_fd()

    def _close_fd(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # Writing.

    def append(self, chunks: Sequence[Buffer]) -> None:
        old_size = self._size
        try:
            self._size = self._write(old_size, chunks)
        except OSError as error:
            self._cut_back(old_size, error)
            raise

    def write_at(self, position: int, data: Buffer) -> None:
        if data:  # nothing, written behind the end, makes no hole
            end = self._write(position, (data,))
            self._size = max(self._size, end)
        elif self._closing:
            raise _closed(self.path)

    def _write(self, position: int, chunks: Sequence[Buffer]) -> int:
        if self._closing:
            raise _closed(self.path)
        fd = self._fd
        for start in range(0, len(chunks), IOV_MAX):
            group = chunks[start : start + IOV_MAX]
            total = sum(map(len, group))
            written = os.pwritev(fd, group, position)
            position += written
            if written < total:
                position = self._write_rest(position, group, written)
        return position

    def _write_rest(self, position: int, group: Sequence[Buffer], written: int) -> int:
        """A short write is legal (a signal, a disk that is nearly full): go on until it fails or ends."""
        rest = memoryview(b"".join(group))[written:]
        while rest:
            count = os.pwrite(self._fd, rest, position)
            position += count
            rest = rest[count:]
        return position

    def _cut_back(self, size: int, why: OSError) -> None:
        if self._closing:
            return
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            # What is behind `size` can't be told from data any more: nobody may append after it. For want of room one waits; not here.
            self.close()
            raise error from why

    def truncate(self, size: int) -> None:
        if self._closing:
            raise _closed(self.path)
        os.ftruncate(self._fd, size)
        self._size = size

    # Reading.

    def read(self, position: int, length: int) -> bytes:
        self.hold()
        try:
            data = os.pread(self._fd, min(length, READ_MAX), position)
            if len(data) == length or position + len(data) >= self._size:
                return data
            parts = [data]
            got = len(data)
            while got < length and data:
                data = os.pread(self._fd, min(length - got, READ_MAX), position + got)
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        finally:
            self.release()

    def read_cached(self, position: int, length: int) -> bytes | None:
        length = min(length, self._size - position, READ_MAX)
        if length <= 0:
            return b""
        fd = self.fileno()
        if not RealFile.nowait_works:
            return os.pread(fd, length, position)
        if length > PROBE_STEP:
            # One copy instead of two; see `_is_cached` for what that risks.
            return os.pread(fd, length, position) if self._is_cached(position, length) else None
        buffer = bytearray(length)
        try:
            count = os.preadv(fd, (buffer,), position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
            RealFile.nowait_works = False
            return os.pread(fd, length, position)
        return bytes(buffer) if count == length else None

    def read_once(self, position: int, length: int) -> bytes:
        """Without reading ahead: what came of that would look as if somebody else had asked for it.

        Where a part of the range was in memory, all of it is dropped; so ask for small ones.
        """
        self.hold()
        try:
            length = min(length, max(self._size - position, 0))
            # Before anything is asked: a look at what is not there would make the kernel read ahead, too.
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
            if length == 0 or (RealFile.nowait_works and self._is_cached(position, length)):
                return self.read(position, length)
            try:
                return self.read(position, length)
            finally:
                os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_DONTNEED)
        finally:
            self.release()

    def send_cached(self, target: int, position: int, length: int) -> int | None:
        """`sendfile` to a non-blocking socket: how much it took, None when the disk would be waited for."""
        fd = self.fileno()
        if RealFile.nowait_works and not self._is_cached(position, length):
            return None
        return os.sendfile(target, fd, position, length)

    def _is_cached(self, position: int, length: int) -> bool:
        """Whether a range is in the page cache, going by one byte in each step.

        The kernel reads ahead and evicts in larger units, so a hole between two steps is rare, and costs
        the loop one read of the disk.
        """
        fd, buffer = self._fd, _PROBE
        last = position + length - 1
        try:
            for at in range(position, last, PROBE_STEP):
                os.preadv(fd, buffer, at, os.RWF_NOWAIT)
            os.preadv(fd, buffer, last, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
            RealFile.nowait_works = False
        return True

    # Durability.

    def sync(self) -> None:
        """fdatasync: the data and the size, not the times.

        A failure is remembered and every later sync fails too: the kernel has marked the pages clean, so
        that a second fdatasync would succeed without having written anything (PostgreSQL's fsyncgate, 2018).

        Nor do two run at one time: the kernel tells of a failed write once for each descriptor, so one of the two would hear
        that all is well (`file_check_and_advance_wb_err`).
        """
        with self._sync_turn:
            if self._sync_failed is not None:
                raise OSError(errno.EIO, "an earlier sync of this file failed", self.path)
            self.hold()
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self._sync_failed = error
                raise
            finally:
                self.release()


def close_quietly(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)
