"""One TCP connection: frames in, chunks out.

INVARIANT  what `write` was given leaves in that order, each byte once, or the connection is gone.
PREVENTS   a reply overtaking another whose record bytes were still on the disk.
PROVED BY  tests/cluster/base/test_net_contract.py::test_a_slow_file_does_not_let_later_bytes_overtake_it
"""

import asyncio
import collections
from collections.abc import Sequence
from typing import Any, Final, cast

from .errors import ConnectionLost, FrameRefused
from .framing import Framer
from .ports import Chunk, Disk, FileSlice, Log, Tasks
from .real_file import RealFile

# Read-ahead: receiving stops while this much waits for its reader, and goes on below half of it.
READ_AHEAD_MAX: Final = 1024 * 1024
# How much may wait for the peer before `drain` waits too.
WRITE_HIGH: Final = 512 * 1024
WRITE_LOW: Final = 128 * 1024
# Chunks up to this size are joined: copying is cheaper than another entry in a writev.
JOIN_MAX: Final = 4 * 1024
# File ranges are brought into memory in pieces, as the peer takes them.
PIECE: Final = 256 * 1024
# How long `close` goes on sending to a peer that takes nothing.
LINGER_S: Final = 10.0


class RealConnection(asyncio.BufferedProtocol):
    """See `ports.Connection`."""

    def __init__(
        self,
        scratch: bytearray,
        disk: Disk,
        tasks: Tasks,
        log: Log,
        registry: "dict[RealConnection, None]",
    ) -> None:
        self._registry = registry
        self._framer = Framer(scratch)
        self._disk = disk
        self._tasks = tasks
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._remote: tuple[str, int] = ("", 0)
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._reader: asyncio.Future[None] | None = None
        self._reading = True
        self._ended = False  # the peer will send nothing more
        self._closing = False  # we will write nothing more
        self._left = False  # `close` or `abort` was called here
        self._lost: ConnectionLost | None = None
        self._outbound: collections.deque[Chunk] = collections.deque()
        self._outbound_bytes = 0
        self._fetching = False  # a piece of the first chunk is being read from the disk
        self._full = False  # the transport asked us to wait
        self._drainers: list[asyncio.Future[None]] = []
        self._linger: asyncio.TimerHandle | None = None

    @property
    def remote(self) -> tuple[str, int]:
        return self._remote

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        if self._transport is None:
            return None
        return cast("dict[str, Any] | None", self._transport.get_extra_info("peercert") or None)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)
        self._registry[self] = None
        name = transport.get_extra_info("peername")
        self._remote = (str(name[0]), int(name[1])) if name else ("", 0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        framer = self._framer
        framer.received(nbytes)
        if framer.frames or framer.held_back is not None:
            self._wake_reader()
            if framer.queued_bytes > READ_AHEAD_MAX or framer.held_back is not None:
                self._pause()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake_reader()
        # Replies to what was already asked may still be sent, but TLS knows no half-closed connection.
        return self._transport is not None and not self._transport.get_extra_info("sslcontext")

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.pop(self, None)
        self._closing = True
        if exc is not None and self._lost is None:
            self._lost = ConnectionLost(f"connection with {self._name()} lost: {exc}")
        self._ended = True
        if self._linger is not None:
            self._linger.cancel()
        self._forget_outbound()
        self._wake_reader()
        self._wake_drainers()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._pump()
        if not self._is_behind():
            self._wake_drainers()

    # Reading.

    async def read_frame(self, size_max: int) -> memoryview | None:
        framer = self._framer
        framer.allow(size_max)
        while not framer.frames:
            if framer.held_back is not None:
                length = framer.held_back
                raise FrameRefused(f"a frame of {length} bytes, allowed are 0 to {size_max}")
            if self._ended:
                self._check_end()
                return None
            self._resume()
            assert self._reader is None, "one reader at a time"
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._left:
            self._check_end()
            return None  # whoever closes wants no more of what came before
        frame = framer.take()
        if len(frame) > size_max:
            raise FrameRefused(f"a frame of {len(frame)} bytes, allowed are 0 to {size_max}")
        if not self._reading and framer.queued_bytes < READ_AHEAD_MAX // 2:
            self._resume()
        return frame

    def _check_end(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._framer.inside_frame and not self._left:
            raise ConnectionLost(f"{self._name()} closed the connection inside a frame")

    def _pause(self) -> None:
        if self._reading and self._transport is not None and not self._ended:
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and self._transport is not None and not self._ended:
            self._reading = True
            self._transport.resume_reading()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # Writing.

    def write(self, chunks: Sequence[Chunk]) -> None:
        if self._closing:
            return
        for chunk in chunks:
            if isinstance(chunk, FileSlice) and isinstance(chunk.file, RealFile):
                try:
                    chunk.file.hold()
                except OSError as error:
                    self._fail_read(chunk, error)
                    return
            self._outbound.append(chunk)
            self._outbound_bytes += len(chunk)
        self._pump()

    async def drain(self) -> None:
        while self._is_behind():
            waiter = self._loop.create_future()
            self._drainers.append(waiter)
            await waiter
        if self._lost is not None:
            raise self._lost
        if self._closing:
            raise ConnectionLost(f"the connection with {self._name()} is closed")

    def _is_behind(self) -> bool:
        return not self._closed.done() and (self._full or self._outbound_bytes > WRITE_HIGH)

    def _wake_drainers(self) -> None:
        drainers, self._drainers = self._drainers, []
        for waiter in drainers:
            if not waiter.done():
                waiter.set_result(None)

    def _pump(self) -> None:
        """Hand the transport what it can take, in order; stops at a file range that has to wait."""
        transport, outbound = self._transport, self._outbound
        assert transport is not None
        ready: list[bytes | bytearray | memoryview] = []
        small: list[bytes | bytearray | memoryview] = []
        while outbound and not self._fetching:
            chunk = outbound[0]
            if isinstance(chunk, FileSlice):
                if ready or small:
                    self._send(transport, ready, small)
                if self._full or not self._pump_piece(transport, chunk):
                    break
                continue
            outbound.popleft()
            size = len(chunk)
            self._outbound_bytes -= size
            if size <= JOIN_MAX:
                small.append(chunk)
                continue
            if small:
                ready.append(small[0] if len(small) == 1 else b"".join(small))
                small = []
            ready.append(chunk)
        if ready or small:
            self._send(transport, ready, small)
        if self._closing and not outbound and not self._closed.done():
            transport.close()

    def _send(
        self,
        transport: asyncio.Transport,
        ready: list[bytes | bytearray | memoryview],
        small: list[bytes | bytearray | memoryview],
    ) -> None:
        if small:
            ready.append(small[0] if len(small) == 1 else b"".join(small))
            small.clear()
        if len(ready) == 1:
            transport.write(ready[0])
        else:
            transport.writelines(ready)
        ready.clear()

    def _pump_piece(self, transport: asyncio.Transport, chunk: FileSlice) -> bool:
        """Send the first piece of a file range; False when that has to wait for the disk."""
        length = min(len(chunk), PIECE)
        try:
            data = chunk.file.read_cached(chunk.position, length)
        except OSError as error:
            self._fail_read(chunk, error)
            return False
        if data is None:
            self._fetching = True
            self._tasks.spawn(self._fetch(chunk, length), name=f"read {chunk.file.path}")
            return False
        return self._take_piece(transport, chunk, length, data)

    def _take_piece(
        self, transport: asyncio.Transport, chunk: FileSlice, length: int, data: bytes
    ) -> bool:
        if len(data) < length:
            self._fail_read(chunk, EOFError("the file is shorter than what was promised"))
            return False
        transport.write(data)
        self._outbound_bytes -= length
        self._outbound.popleft()
        if length < len(chunk):
            rest = FileSlice(chunk.file, chunk.position + length, len(chunk) - length)
            self._outbound.appendleft(rest)
        else:
            _release(chunk)
        return True

    async def _fetch(self, chunk: FileSlice, length: int) -> None:
        try:
            data = await self._disk.run(chunk.file.read, chunk.position, length)
        except OSError as error:
            self._fail_read(chunk, error)
            return
        finally:
            self._fetching = False
            if self._closed.done():
                self._forget_outbound()
        if self._transport is None or self._closed.done():
            return
        if self._take_piece(self._transport, chunk, length, data):
            self._pump()
            if not self._is_behind():
                self._wake_drainers()

    def _fail_read(self, chunk: FileSlice, error: Exception) -> None:
        """The peer was promised these bytes: without them the stream makes no sense any more."""
        self._log.error(
            "file_range_unreadable", path=chunk.file.path, position=chunk.position, error=str(error)
        )
        self.abort()

    def _forget_outbound(self) -> None:
        if self._fetching:
            return  # that read still needs its file; it comes back here
        for chunk in self._outbound:
            if isinstance(chunk, FileSlice):
                _release(chunk)
        self._outbound.clear()
        self._outbound_bytes = 0

    # The end.

    def close(self) -> None:
        if self._closing:
            return
        self._closing = self._left = True
        self._ended = True
        self._wake_reader()
        if self._transport is None:
            return
        self._linger = self._loop.call_later(LINGER_S, self._give_up)
        self._pump()

    def _give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        if self._lost is None and not self._closed.done():
            self._lost = ConnectionLost(f"the connection with {self._name()} was aborted here")
        self._closing = self._left = True
        self._ended = True
        self._wake_reader()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    def _name(self) -> str:
        return f"{self._remote[0]}:{self._remote[1]}"


def _release(chunk: FileSlice) -> None:
    if isinstance(chunk.file, RealFile):
        chunk.file.release()
