"""One end of a simulated connection: what the pipes bring, and what goes into them."""

import asyncio
import errno
import itertools
import zlib
from collections.abc import Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ConnectionLost, FrameRefused
from fencepost.cluster.base.framing import Framer, why_refused
from fencepost.cluster.base.ports import Chunk, FileSlice, Log
from fencepost.cluster.base.real_connection import LINGER_S, READ_AHEAD_MAX
from fencepost.cluster.base.sending import WRITE_HIGH, WRITE_LOW

from .file_node import Lent
from .loop import Incarnation
from .network import DATA, FIN, RST, SEGMENT_MAX, Network, Pipe, Sharing
from .sim_file import SimFile

# A cold file range makes the bytes behind it wait this long.
COLD_READ_S: Final = (0.000_1, 0.005)


class SimConnection:
    """See `ports.Connection`. One end; `peer` is the other one."""

    def __init__(
        self, network: Network, incarnation: Incarnation, local_port: int, log: Log
    ) -> None:
        self._network = network
        self.incarnation = incarnation
        self.machine = incarnation.name
        self.peer_machine = ""
        self.local_port = local_port
        self.received_bytes = 0
        self.number = network.next_number()
        network.connections[self.number] = self
        self._log = log
        self._framer = Framer(network.scratch)
        self._out: Pipe
        self._in: Pipe
        self._peer: SimConnection
        self._reader: asyncio.Future[None] | None = None
        self._drainers: list[asyncio.Future[None]] = []
        self._closed: asyncio.Future[None] = network.loop.create_future()
        self._ended = False  # the peer sends nothing more
        self._left = False  # closed or aborted here
        self._lost: ConnectionLost | None = None
        self._linger: asyncio.TimerHandle | None = None

    def join(self, peer: "SimConnection") -> None:
        self._peer = peer
        peer._peer = self
        self.peer_machine, peer.peer_machine = peer.machine, self.machine
        self._out = peer._in = Pipe(self._network, self, peer)
        self._in = peer._out = Pipe(self._network, peer, self)

    @property
    def remote(self) -> tuple[str, int]:
        return self.peer_machine, self._peer.local_port

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        return None

    # Reading.

    async def read_frame(self, size_max: int) -> memoryview | None:
        self.incarnation.check()
        framer = self._framer
        framer.allow(size_max)
        while not framer.frames:
            if framer.held_back is not None:
                length = framer.held_back
                raise FrameRefused(why_refused(length, size_max))
            if self._ended:
                self._check_end()
                return None
            self._in.unblock()
            assert self._reader is None, "one reader at a time"
            self._reader = self._network.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._left:
            self._check_end()
            return None
        frame = framer.take()
        if len(frame) > size_max:
            raise FrameRefused(why_refused(len(frame), size_max))
        if framer.queued_bytes < READ_AHEAD_MAX // 2:
            self._in.unblock()
        return frame

    def _check_end(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._framer.inside_frame and not self._left:
            raise ConnectionLost(f"{self.peer_machine} closed the connection inside a frame")

    # Writing.

    def write(self, chunks: Sequence[Chunk]) -> None:
        if self._left or self._lost is not None or not self.incarnation.alive:
            return
        delay = 0.0
        parts: list[bytes | bytearray | memoryview] = []
        sharing: list[tuple[Lent, int]] = []
        try:
            for chunk in chunks:
                if isinstance(chunk, FileSlice):
                    data, waited = self._bytes_of(chunk)
                    delay += waited
                    if isinstance(chunk.file, SimFile):  # not a test's own
                        at = sum(map(len, parts))
                        sharing.append((chunk.file.lend(chunk.position, chunk.length), at))
                    parts.append(data)
                else:
                    parts.append(chunk)
        except OSError as error:
            self._log.error("file_range_unreadable", error=str(error))
            self.abort()
            return
        self._send(b"".join(parts), delay, sharing)

    def _bytes_of(self, chunk: FileSlice) -> tuple[bytes, float]:
        data = chunk.file.read_cached(chunk.position, chunk.length)
        delay = 0.0
        if data is None:
            data = chunk.file.read(chunk.position, chunk.length)
            delay = self._network.rng.uniform(*COLD_READ_S)
        if len(data) < chunk.length:
            raise OSError(errno.EIO, "the file is shorter than what was promised", chunk.file.path)
        return data, delay

    def _send(self, data: bytes, delay: float, sharing: Sharing) -> None:
        network, rng = self._network, self._network.rng
        odds = network.odds(self.machine, self.peer_machine)
        if odds.reset_odds and rng.random() < odds.reset_odds:
            some = data[: rng.randint(0, len(data))]
            self._out.push(DATA, some, delay=delay, sharing=sharing)
            self.break_off(keep=self._out.size)
            return
        is_split = odds.split_odds and len(data) > 1 and rng.random() < odds.split_odds
        if not is_split and 0 < len(data) <= SEGMENT_MAX:
            # The usual case of what follows.
            self._out.push(DATA, data, delay=delay, sharing=sharing)
            return
        cuts = [0, *range(SEGMENT_MAX, len(data), SEGMENT_MAX), len(data)]
        if is_split:
            cuts = sorted([*cuts, *(rng.randrange(1, len(data)) for _ in range(rng.randint(1, 3)))])
        for start, stop in itertools.pairwise(cuts):
            if start < stop:
                here = [(lent, at - start) for lent, at in sharing]
                self._out.push(DATA, data[start:stop], delay=delay, sharing=here)

    async def drain(self) -> None:
        self.incarnation.check()
        if self._out.size > WRITE_HIGH:
            while self._out.size > WRITE_LOW and not self._closed.done():
                waiter = self._network.loop.create_future()
                self._drainers.append(waiter)
                await waiter
        if self._lost is not None:
            raise self._lost
        if self._left:
            raise ConnectionLost(f"the connection with {self.peer_machine} is closed")

    # What the pipes tell.

    def has_room(self) -> bool:
        """Whether the kernel would take more for this end."""
        if self._left or not self.incarnation.alive:
            return True  # it takes it, to answer with a reset
        return self._framer.held_back is None and self._framer.queued_bytes <= READ_AHEAD_MAX

    def arrived(self, kind: str, data: bytes) -> None:
        self.received_bytes += len(data)
        said = f" conn={self.number} kind={kind} size={len(data)} crc={zlib.crc32(data)}"
        self._network.trace.add(self.machine, "net.arrived", said)
        if kind == RST:
            self._out.clear()
            self.lost("reset by peer")
        elif self._left or self._closed.done() or not self.incarnation.alive:
            if kind == DATA:
                self._out.push(RST)
        elif kind == FIN:
            self._ended = True
            self._wake_reader()
        else:
            self._framer.feed(data)
            if self._framer.frames or self._framer.held_back is not None:
                self._wake_reader()

    def sent(self) -> None:
        if self._out.size <= WRITE_LOW:
            self._wake_drainers()
            if self._left and self._out.size == 0:
                self._finish()

    def lost(self, why: str) -> None:
        """The connection is no more, as far as this end can see."""
        if self._closed.done():
            return
        self._lost = self._lost or ConnectionLost(
            f"connection with {self.peer_machine} lost: {why}"
        )
        self._ended = True
        self._finish()

    def _finish(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._wake_reader()
        if not self._closed.done():
            self._closed.set_result(None)
        self._wake_drainers()
        self._network.connections.pop(self.number, None)

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_drainers(self) -> None:
        drainers, self._drainers = self._drainers, []
        for waiter in drainers:
            if not waiter.done():
                waiter.set_result(None)

    # The end.

    def close(self) -> None:
        if self._left or not self.incarnation.alive:
            return
        self._left = self._ended = True
        self._wake_reader()
        if self._closed.done():
            return
        self._network.trace.event(self.machine, "net.close", conn=self.number)
        self._out.push(FIN)
        if self._out.size == 0:
            self._network.later(0.0, self._finish)
        else:
            self._linger = self._network.later(LINGER_S, self._give_up)

    def _give_up(self) -> None:
        self._out.clear()
        self._out.push(RST)
        self._finish()

    def abort(self) -> None:
        if not self.incarnation.alive or self._closed.done():
            return
        self._network.trace.event(self.machine, "net.abort", conn=self.number)
        self._left = True
        self._out.clear()
        self._out.push(RST)
        self.lost("aborted here")

    def break_off(self, keep: int = 0) -> None:
        """Something between the two ends broke the connection for both."""
        self._network.trace.event(self.machine, "net.reset", conn=self.number)
        self._out.clear(keep)
        self._out.push(RST)
        self._in.clear()
        self._in.push(RST)

    def orphan(self, *, silent: bool, machine_stays: bool) -> None:
        """The process of this end is gone. What it had sent may have left, wholly or in part."""
        rng = self._network.rng
        size = self._out.size
        self._out.clear(rng.choice((0, size, rng.randint(0, size))))
        if not silent:
            gentle = machine_stays and rng.random() < 0.5
            self._out.push(FIN if gentle else RST)
        self._in.unblock()  # what waits for it to read is sent again, and answered with a reset
        self._network.connections.pop(self.number, None)

    async def secure(self) -> None:
        """There is no TLS here."""

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)
