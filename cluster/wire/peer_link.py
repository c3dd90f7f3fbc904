"""One connection with a peer that has proved who it is, and the keeping of it.

INVARIANT  what waits to be sent to a peer has a bound.
PREVENTS   a node filled by what a stopped peer does not take.
PROVED BY  tests/cluster/wire/test_peer_door.py::test_a_peer_that_reads_nothing_costs_a_bounded_memory
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..base.errors import ConnectionLost, ConnectionRefused, FrameRefused, Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Chunk, Connection, Env
from .peer_frames import FRAME_MAX, Envelope, pack_frame, read_envelope, unpack_frame
from .peer_handshake import PeerName
from .peer_pulse import PeerTimes, Pulse

# Written without looking whether the connection still takes it; then it is looked, and the rest waits here.
SETTLE_BYTES: Final = 256 * 1024
QUEUE_BYTES_MAX: Final = 16 * 1024 * 1024
# What a queued frame costs besides its bytes.
QUEUE_OVERHEAD: Final = 512
ASKED_MAX: Final = 10_000
# A connection that held for less was no success: its end does not start the back-off anew.
STEADY_S: Final = 1.0


@dataclass(slots=True)
class PeerCounters:
    """Plain counts, read by whoever exports them."""

    messages_sent: int = 0
    messages_dropped: int = 0  # nobody there, or too much waits for it already
    messages_unknown: int = 0
    requests_sent: int = 0
    requests_served: int = 0
    connections_lost: int = 0
    silent_peers: int = 0  # of them: those that said nothing for too long
    handshakes_refused: int = 0
    handshakes_late: int = 0  # not proved wrong: it took too long, or had to make room for others


class PeerWire:
    """A control connection: messages, requests and their answers, both ways."""

    def __init__(
        self,
        env: Env,
        connection: Connection,
        name: PeerName,
        times: PeerTimes,
        counters: PeerCounters,
    ) -> None:
        self.name = name
        self.connection = connection
        self.over = asyncio.Event()
        self.asked: dict[int, asyncio.Future[tuple[dict[str, Any], memoryview]]] = {}
        self.serving = 0
        self._pulse = Pulse(connection, times, env.clock.steady())
        self._counters = counters
        self._last_id = 0
        self._queue: deque[tuple[list[Chunk], int]] = deque()
        self._queued_bytes = 0
        self._unsettled = 0
        self._behind = False
        self._wake = asyncio.Event()
        self._settler = env.tasks.spawn(self._settle(), name=f"sending to node {name.node_id}")

    @property
    def ended(self) -> bool:
        return self.over.is_set()

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    # Sending.

    def post(self, chunks: list[Chunk]) -> bool:
        """Send or queue one frame; False when it surely was not sent."""
        if self.ended:
            return False
        size = sum(map(len, chunks))
        if self._behind:
            cost = size + QUEUE_OVERHEAD
            if self._queued_bytes + cost > QUEUE_BYTES_MAX:
                return False
            self._queue.append((chunks, cost))
            self._queued_bytes += cost
            return True
        self._write(chunks, size)
        return True

    def _write(self, chunks: list[Chunk], size: int) -> None:
        self._pulse.spoke = True
        self.connection.write(chunks)
        self._unsettled += size
        if self._unsettled > SETTLE_BYTES:
            self._behind = True
            self._wake.set()

    async def _settle(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self.connection.drain()
                self._unsettled = 0
                while self._queue and self._unsettled <= SETTLE_BYTES:
                    chunks, cost = self._queue.popleft()
                    self._queued_bytes -= cost
                    self._write(chunks, cost)
                self._behind = self._unsettled > SETTLE_BYTES
        except ConnectionLost:
            return  # the reader sees it too, and ends the wire

    # Requests.

    def ask(self, make: Callable[[int], list[Chunk]]) -> int | None:
        """Send the request that `make` builds around its number; None when it surely was not sent."""
        if len(self.asked) >= ASKED_MAX:
            return None
        self._last_id += 1
        if not self.post(make(self._last_id)):
            return None
        self.asked[self._last_id] = asyncio.get_running_loop().create_future()
        return self._last_id

    # Receiving.

    async def receive(self, take: Callable[["PeerWire", Envelope, memoryview], None]) -> str:
        """Hand on what comes until the connection ends, in order; says why it ended."""
        why = "it closed the connection"
        self._pulse.reading = True
        try:
            while (frame := await self.connection.read_frame(FRAME_MAX)) is not None:
                header, payload = unpack_frame(frame)
                if header is not None:
                    take(self, read_envelope(header), payload)
        except FrameRefused as refused:
            why = str(refused)
        except Trouble as trouble:
            why = self._pulse.why or str(trouble)
        finally:
            self.end(why)
        return why

    def tick(self, now: float, *, late: bool) -> bool:
        """False once the connection has ended."""
        if not self.ended and not self._pulse.tick(now, late=late):
            self._counters.silent_peers += 1
            self.end(self._pulse.why)
        return not self.ended

    def end(self, why: str) -> None:
        """Nothing is sent or answered on it any more: whoever waits for an answer is told so."""
        if self.ended:
            return
        self.over.set()
        self._counters.connections_lost += 1
        self._settler.cancel()
        self._queue.clear()
        self._queued_bytes = 0
        self.connection.close()
        asked, self.asked = self.asked, {}
        for waiting in asked.values():
            if not waiting.done():
                waiting.set_exception(
                    ConnectionLost(f"node {self.name.node_id} did not answer: {why}")
                )


class PeerStream:
    """A connection of its own between two nodes, for one purpose. The header of its frames is its user's."""

    def __init__(
        self,
        env: Env,
        connection: Connection,
        name: PeerName,
        times: PeerTimes,
        counters: PeerCounters,
    ) -> None:
        self.name = name
        self.ended = False
        self._connection = connection
        self._pulse = Pulse(connection, times, env.clock.steady())
        self._counters = counters

    @property
    def peer_id(self) -> BrokerId:
        return self.name.node_id

    async def read(self) -> tuple[dict[str, Any], memoryview] | None:
        """The next frame; None at a clean end. ConnectionLost when it broke or the peer fell silent."""
        pulse = self._pulse
        while True:
            pulse.reading = True
            try:
                frame = await self._connection.read_frame(FRAME_MAX)
            except ConnectionLost as lost:
                self.ended = True
                if not pulse.why:
                    raise
                raise ConnectionLost(f"node {self.peer_id}: {pulse.why}") from lost
            finally:
                pulse.reading = False
            if frame is None:
                self.ended = True
                return None
            header, payload = unpack_frame(frame)
            if header is not None:
                return header, payload

    def write(self, header: dict[str, Any], chunks: Sequence[Chunk] = ()) -> None:
        """Queue a frame, never blocks; ignored once the connection is gone. Bound what is queued by `drain`."""
        self._pulse.spoke = True
        self._connection.write(pack_frame(header, chunks))

    async def drain(self) -> None:
        await self._connection.drain()

    def tick(self, now: float, *, late: bool) -> bool:
        """False once the connection has ended."""
        if not self.ended and not self._pulse.tick(now, late=late):
            self._counters.silent_peers += 1
            self.ended = True
        return not self.ended

    def end(self, why: str) -> None:
        """The door's own end of it: whoever reads is told why."""
        if not self.ended:
            self._pulse.why = why
            self.abort()

    def close(self) -> None:
        """Send what was queued, then close."""
        self.ended = True
        self._connection.close()

    def abort(self) -> None:
        self.ended = True
        self._connection.abort()


@dataclass(slots=True, kw_only=True)
class LinkCalls:
    """What a link needs of its door."""

    dial: Callable[[BrokerId], Any]  # an awaitable PeerWire; Trouble when it can't
    take: Callable[[PeerWire, Envelope, memoryview], None]
    up: Callable[[BrokerId], None]
    gone: Callable[[BrokerId], None]
    down: Callable[[PeerWire, str], None]
    failed: Callable[[BrokerId, Trouble], None]


class PeerLink:
    """The connection that this node opens to one peer and, while it is `wanted`, opens again."""

    def __init__(self, env: Env, node_id: BrokerId, times: PeerTimes, calls: LinkCalls) -> None:
        self.node_id = node_id
        self.wire: PeerWire | None = None
        self.wanted = False
        self.task: asyncio.Task[None] | None = None
        self._env = env
        self._times = times
        self._calls = calls
        self._retries = 0
        self._kick = asyncio.Event()
        self._waiting: list[asyncio.Future[PeerWire]] = []
        self._was_up = False  # and its process is not known to be dead

    async def connected(self) -> PeerWire:
        """The wire, once there is one; Trouble (REFUSED) when the next attempt to dial fails."""
        if self.wire is not None:
            return self.wire
        waiter: asyncio.Future[PeerWire] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self.start()
        return await waiter

    def start(self) -> None:
        if self.task is None:
            self.task = self._env.tasks.spawn(self._keep(), name=f"link to node {self.node_id}")

    def kick(self) -> None:
        """Something says that the peer is there: dial now."""
        self._kick.set()

    async def _keep(self) -> None:
        try:
            while self.wanted or self._waiting:
                try:
                    wire = await self._calls.dial(self.node_id)
                except Trouble as trouble:
                    self._failed(trouble)
                    if self.wanted:
                        await self._back_off()
                    continue
                if self.wanted or self._waiting:
                    await self._hold(wire)
                else:
                    wire.end("it is not watched any more")
        finally:
            self.task = None
            self._tell_waiting(None, Trouble("the peer door is closed", Outcome.REFUSED))

    async def _hold(self, wire: PeerWire) -> None:
        since = self._env.clock.steady()
        self.wire, self._was_up = wire, True
        self._tell_waiting(wire, None)
        self._calls.up(self.node_id)
        try:
            why = await wire.receive(self._calls.take)
        finally:
            self.wire = None
        self._calls.down(wire, why)
        if self._env.clock.steady() - since >= STEADY_S:
            self._retries = 0
        elif self.wanted:
            await self._back_off()

    def _failed(self, trouble: Trouble) -> None:
        self._tell_waiting(None, trouble)
        self._calls.failed(self.node_id, trouble)
        if isinstance(trouble, ConnectionRefused) and self._was_up:
            self._was_up = False
            self._calls.gone(self.node_id)

    def _tell_waiting(self, wire: PeerWire | None, trouble: Trouble | None) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.done():
                continue
            if wire is not None:
                waiter.set_result(wire)
            else:
                waiter.set_exception(Trouble(str(trouble), Outcome.REFUSED))

    async def _back_off(self) -> None:
        times = self._times
        longest = min(times.retry_max_s, times.retry_min_s * 2**self._retries)
        self._retries = min(self._retries + 1, 16)
        self._kick.clear()
        try:
            async with asyncio.timeout(longest * self._env.rng.uniform(0.5, 1.0)):
                await self._kick.wait()
        except TimeoutError:
            return
