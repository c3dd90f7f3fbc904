"""What a connection still has to send: bytes that are there, and ranges of files that are brought as needed.

INVARIANT  what `write` was given leaves in that order, each byte once, or the connection is gone.
PREVENTS   a reply overtaking another whose record bytes were still on the disk.
PROVED BY  tests/cluster/base/test_net_contract.py::test_a_slow_file_does_not_let_later_bytes_overtake_it

A range of a file takes the cheapest way that is open to it: from the page cache straight into the socket
(`sendfile`) while the transport has nothing queued; through memory when the socket is full, so that
the transport waits for room; through a thread when the disk would have to be waited for.
"""

import asyncio
import collections
import socket
from collections.abc import Callable, Sequence
from typing import Final, TypeGuard

from .ports import Buffer, Chunk, Disk, FileSlice, Log, Tasks
from .real_file import RealFile

# How much may wait for the peer before `drain` waits too.
WRITE_HIGH: Final = 512 * 1024
WRITE_LOW: Final = 128 * 1024
# Chunks up to this size are joined: copying is cheaper than another entry in a writev.
JOIN_MAX: Final = 4 * 1024
# What goes through memory at a time, and how little of it when it only serves to wait for room: with 32 KiB instead of 1,
# a twelfth of the time in which a consumer was sent a gigabyte went into reading those.
PIECE: Final = 256 * 1024
WAITING_PIECE: Final = 1024
# How much is sent without giving the loop's other work its turn.
TURN_MAX: Final = 1024 * 1024
# Replies of one turn of the loop are sent together, up to this much.
BATCH_MAX: Final = 64 * 1024
DIRECT_MIN: Final = 16 * 1024


class Sender:
    """The outgoing half of one connection. `failed` ends the connection, `emptied` says that all has left."""

    def __init__(
        self,
        disk: Disk,
        tasks: Tasks,
        log: Log,
        *,
        failed: Callable[[], None],
        emptied: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._tasks = tasks
        self._log = log
        self._failed = failed
        self._emptied = emptied
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._queue: collections.deque[Chunk] = collections.deque()
        self._queued_bytes = 0
        self._fetching = False  # a piece of the first chunk is being read from the disk
        self._yielded = False  # the loop's other work has its turn
        self._full = False  # the transport asked us to wait
        self._awaits_room = False  # and shall say when it is empty, not when it is low
        self._over = False
        self._batching = False  # something was sent in this turn of the loop already
        self._call_soon = asyncio.get_running_loop().call_soon
        self._drainers: list[asyncio.Future[None]] = []

    def attach(self, transport: asyncio.Transport, plain: socket.socket | None) -> None:
        """`plain` is the socket below, when bytes may go past the transport."""
        self._transport = transport
        self._socket = plain
        transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)

    # What the connection calls.

    def write(self, chunks: Sequence[Chunk]) -> None:
        if self._batching:
            # Not the first in this turn of the loop: a system call for all others together.
            self._enqueue(chunks)
            if self._queued_bytes > BATCH_MAX:
                self.pump()
            return
        self._batching = True
        self._call_soon(self._turn_over)
        if not self._queue and _is_small(chunks) and self._transport is not None:
            self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        else:
            self._enqueue(chunks)
            self.pump()

    def _turn_over(self) -> None:
        self._batching = False
        if self._queue and not self._over:
            self.pump()

    def _enqueue(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            if isinstance(chunk, FileSlice) and isinstance(chunk.file, RealFile):
                try:
                    chunk.file.hold()
                except OSError as error:
                    self._unreadable(chunk, error)
                    return
            self._queue.append(chunk)
            self._queued_bytes += len(chunk)

    async def drained(self) -> None:
        while self.is_behind():
            waiter = asyncio.get_running_loop().create_future()
            self._drainers.append(waiter)
            await waiter

    def pause(self) -> None:
        self._full = True

    def resume(self) -> None:
        self._full = False
        if self._awaits_room and self._transport is not None:
            self._awaits_room = False
            self._transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)
        self.pump()

    def end(self) -> None:
        """The connection is gone: nothing will be sent any more."""
        self._over = True
        self._socket = None
        self._forget()
        self._wake()

    def _is_over(self) -> bool:
        return self._over

    def is_behind(self) -> bool:
        return not self._over and (self._full or self._queued_bytes > WRITE_HIGH)

    def _wake(self) -> None:
        drainers, self._drainers = self._drainers, []
        for waiter in drainers:
            if not waiter.done():
                waiter.set_result(None)

    def _forget(self) -> None:
        if self._fetching:
            return  # that read still needs its file; it comes back here
        for chunk in self._queue:
            if isinstance(chunk, FileSlice):
                _release(chunk)
        self._queue.clear()
        self._queued_bytes = 0

    # Sending.

    def pump(self) -> None:
        """Hand on what can be taken, in order; stops at a file range that has to wait."""
        if self._is_over():
            return
        transport, queue = self._transport, self._queue
        assert transport is not None
        ready: list[Buffer] = []
        small: list[Buffer] = []
        turn = 0
        while queue and not self._fetching and not self._yielded:
            chunk = queue[0]
            if not isinstance(chunk, FileSlice):
                queue.popleft()
                self._queued_bytes -= len(chunk)
                if len(chunk) <= JOIN_MAX:
                    small.append(chunk)
                else:
                    _joined(ready, small)
                    ready.append(chunk)
                continue
            if self._full:
                break
            if len(chunk) < DIRECT_MIN:
                sent = self._take_small(ready, small, chunk)
            else:
                _joined(ready, small)
                sent = self._send_range(transport, ready, chunk)
            if sent == 0:
                break
            turn += sent
            if turn >= TURN_MAX and queue:
                self._yield()
        if self._is_over():
            return
        _joined(ready, small)
        _hand_on(transport, ready)
        if not queue:
            self._emptied()
        if self._drainers and not self.is_behind():
            self._wake()

    def _yield(self) -> None:
        self._yielded = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._yielded = False
        if not self._over:
            self.pump()

    def _take_small(self, ready: list[Buffer], small: list[Buffer], chunk: FileSlice) -> int:
        """A short range goes with what stands around it: every write is a system call, and a wake of the peer.

        How much of it; 0 when it has to wait.
        """
        try:
            data = chunk.file.read_cached(chunk.position, len(chunk))
        except OSError as error:
            self._unreadable(chunk, error)
            return 0
        if data is None:
            self._fetch_soon(chunk, len(chunk))
            return 0
        if len(data) <= JOIN_MAX:
            small.append(data)
        else:
            _joined(ready, small)
            ready.append(data)
        return self._sent(chunk, len(chunk), len(data))

    def _fetch_soon(self, chunk: FileSlice, length: int) -> None:
        self._fetching = True
        self._tasks.spawn(self._fetch(chunk, length), name=f"read {chunk.file.path}")

    def _send_range(
        self, transport: asyncio.Transport, ready: list[Buffer], chunk: FileSlice
    ) -> int:
        """Send what is ready and the first piece of a range; how much of the range, 0 when it has to wait."""
        plain = self._socket
        direct = (
            plain is not None
            and len(chunk) >= DIRECT_MIN
            and isinstance(chunk.file, RealFile)
            and transport.get_write_buffer_size() == 0
        )
        try:
            if direct and plain is not None and _sent_past(plain, transport, ready):
                return self._send_direct(plain, chunk)
            _hand_on(transport, ready)
            return self._send_copy(transport, chunk, PIECE)
        except OSError as error:
            self._unreadable(chunk, error)
            return 0

    def _send_direct(self, plain: socket.socket, chunk: FileSlice) -> int:
        file = chunk.file
        assert isinstance(file, RealFile)
        assert self._transport is not None
        length = min(len(chunk), TURN_MAX)
        try:
            sent = file.send_cached(plain.fileno(), chunk.position, length)
        except BlockingIOError:
            # The socket is full. The transport waits for room with a little that goes through memory.
            self._awaits_room = True
            self._transport.set_write_buffer_limits(high=0)
            return self._send_copy(self._transport, chunk, WAITING_PIECE)
        except ConnectionError:
            self._over = True
            self._failed()
            return 0
        if sent is None:
            return self._send_copy(self._transport, chunk, PIECE)
        return self._sent(chunk, sent, sent)

    def _send_copy(self, transport: asyncio.Transport, chunk: FileSlice, most: int) -> int:
        length = min(len(chunk), most)
        data = chunk.file.read_cached(chunk.position, length)
        if data is None:
            self._fetch_soon(chunk, length)
            return 0
        if data:
            transport.write(data)
        return self._sent(chunk, length, len(data))

    def _sent(self, chunk: FileSlice, wanted: int, sent: int) -> int:
        """Take what was sent off the first chunk."""
        if sent < wanted or sent == 0:
            self._unreadable(chunk, EOFError("the file is shorter than what was promised"))
            return 0
        self._queued_bytes -= sent
        self._queue.popleft()
        if sent < len(chunk):
            rest = FileSlice(chunk.file, chunk.position + sent, len(chunk) - sent)
            self._queue.appendleft(rest)
        else:
            _release(chunk)
        return sent

    async def _fetch(self, chunk: FileSlice, length: int) -> None:
        """Bring a cold piece into memory on another thread; everything behind it waits."""
        error: OSError | None = None
        data = b""
        try:
            data = await self._disk.run(chunk.file.read, chunk.position, length)
        except OSError as found:
            error = found
        finally:
            self._fetching = False
            if self._over:
                self._forget()
        if self._over or self._transport is None:
            return
        if error is not None:
            self._unreadable(chunk, error)
            return
        self._transport.write(data)
        if self._sent(chunk, length, len(data)):
            self.pump()

    def _unreadable(self, chunk: FileSlice, error: Exception) -> None:
        """The peer was promised these bytes: without them the stream makes no sense any more."""
        self._log.error(
            "file_range_unreadable", path=chunk.file.path, position=chunk.position, cause=str(error)
        )
        self._over = True
        self._failed()


def _is_small(chunks: Sequence[Chunk]) -> TypeGuard[Sequence[Buffer]]:
    total = 0
    for chunk in chunks:
        if type(chunk) is FileSlice:
            return False
        total += len(chunk)
    return total <= JOIN_MAX


def _joined(ready: list[Buffer], small: list[Buffer]) -> None:
    if small:
        ready.append(small[0] if len(small) == 1 else b"".join(small))
        small.clear()


def _hand_on(transport: asyncio.Transport, ready: list[Buffer]) -> None:
    if len(ready) == 1:
        transport.write(ready[0])
    elif ready:
        transport.writelines(ready)
    ready.clear()


def _sent_past(plain: socket.socket, transport: asyncio.Transport, ready: list[Buffer]) -> bool:
    """Send what belongs before a range past the (empty) transport; False when the socket did not take all."""
    if not ready:
        return True
    total = sum(map(len, ready))
    try:
        # More follows at once: no packet of its own for a header.
        sent = plain.sendmsg(ready, [], socket.MSG_MORE)
    except OSError:
        sent = 0  # full, or gone: the transport finds out
    if sent < total:
        transport.write(memoryview(b"".join(ready))[sent:])
    ready.clear()
    return sent == total


def _release(chunk: FileSlice) -> None:
    if isinstance(chunk.file, RealFile):
        chunk.file.release()
