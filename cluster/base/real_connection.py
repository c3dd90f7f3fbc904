"""One TCP connection: frames in, and its beginning and end. What goes out is in `sending.py`.

INVARIANT  a peer that sends faster than it is served is held back by its own kernel, at READ_AHEAD_MAX.
PREVENTS   one busy producer filling the node's memory while its requests wait for the disk.
PROVED BY  tests/cluster/base/test_net_contract.py::test_a_peer_that_does_not_read_holds_its_sender_back
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Final, cast

from .errors import ConnectionLost, FrameRefused
from .framing import Framer, why_refused
from .ports import Chunk, Disk, Log, Tasks
from .sending import Sender

# Read-ahead: receiving stops while this much waits for its reader, and goes on below half of it.
READ_AHEAD_MAX: Final = 1024 * 1024
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
        plain: socket.socket | None = None,
    ) -> None:
        self._registry = registry
        self._plain = plain
        self._framer = Framer(scratch)
        self._sender = Sender(disk, tasks, log, failed=self.abort, emptied=self._emptied)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._remote: tuple[str, int] = ("", 0)
        self.received_bytes = 0
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._reader: asyncio.Future[None] | None = None
        self._reading = True
        self._ended = False  # the peer will send nothing more
        self._closing = False  # we will write nothing more
        self._left = False  # `close` or `abort` was called here
        self._lost: ConnectionLost | None = None
        self._linger: asyncio.TimerHandle | None = None

    @property
    def remote(self) -> tuple[str, int]:
        return self._remote

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        if self._transport is None:
            return None
        return cast("dict[str, Any] | None", self._transport.get_extra_info("peercert") or None)

    async def secure(self) -> None:
        """Nothing to do: without TLS, or dialed, when the handshake belongs to `connect`."""

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sender.attach(self._transport, self._plain)
        self._registry[self] = None
        name = transport.get_extra_info("peername")
        self._remote = (str(name[0]), int(name[1])) if name else ("", 0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
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
        self._sender.end()
        self._wake_reader()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()

    # Reading.

    async def read_frame(self, size_max: int) -> memoryview | None:
        framer = self._framer
        framer.allow(size_max)
        while not framer.frames:
            if framer.held_back is not None:
                raise FrameRefused(why_refused(framer.held_back, size_max))
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
            raise FrameRefused(why_refused(len(frame), size_max))
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
        if not self._closing:
            self._sender.write(chunks)

    async def drain(self) -> None:
        if self._sender.is_behind():
            await self._sender.drained()
        if self._lost is not None:
            raise self._lost
        if self._closing:
            raise ConnectionLost(f"the connection with {self._name()} is closed")

    def _emptied(self) -> None:
        if self._closing and self._transport is not None and not self._closed.done():
            # Not at once: asyncio's transport, closed inside `resume_writing`, ends twice and breaks.
            self._loop.call_soon(self._transport.close)

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
        self._sender.pump()

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
