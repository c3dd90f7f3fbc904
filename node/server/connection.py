"""One client connection: frames in, replies out in the order of their requests.

INVARIANT  replies leave in the order in which their requests came, and a request starts only after the one
           before it is answered or, where its API begins (`Api.begin`), has begun.
PREVENTS   two pipelined batches of one idempotent producer being appended in the wrong order.
PROVED BY  tests/node/test_connection.py::test_replies_keep_request_order_when_the_second_is_ready_first

A request is decoded, handled and answered before the next is begun, as Kafka does it, with one exception: a
produce request appends its batches when it begins and lets the next one start, so that several of them wait for one
group commit together.

Whoever is parked for long has its next frame read meanwhile. It may be the end of the stream, which a plain connection
does not show otherwise: then nobody waits for the answer. What was sent behind a parked request is still served.
"""

import asyncio
import traceback
from collections import deque
from functools import partial

from fencepost.cluster.base.errors import ConnectionLost, FrameRefused
from fencepost.cluster.base.ports import Connection, Env
from fencepost.cluster.base.request_scope import RequestScope, enter_scope
from fencepost.cluster.wire.api import RequestRefused

from .dispatch import Call, Cancel, Dispatcher, Encoded, Origin, UnspeakableReply
from .overtaking import RefusedBatches

# Requests of one connection whose replies wait for a produce request that is appended but not answered, and that one
# itself. Clients keep five in flight; one that keeps more waits in the kernel's buffers instead of in our memory.
PENDING_REPLIES_MAX = 64
# Of the replies to other requests among them: ten bytes ask for 100 KB of settings.
HELD_BYTES_MAX = 1024 * 1024
# Longer than a consumer's poll waits (fetch.max.wait.ms, 0.5 s): those end by themselves.
LOOK_AHEAD_S = 1.0


class _Slot:
    """The place of one reply in the order of requests."""

    __slots__ = ("cancel", "is_ready", "reply")

    def __init__(self) -> None:
        self.is_ready = False
        self.reply: Encoded | UnspeakableReply | None = None
        self.cancel: Cancel | None = None


class ClientConnection:
    """Serves one client until it goes away."""

    def __init__(
        self, env: Env, connection: Connection, dispatcher: Dispatcher, listener: str
    ) -> None:
        self.env = env
        self.connection = connection
        self.dispatcher = dispatcher
        number, refused = next(dispatcher.connections), RefusedBatches(dispatcher.room)
        self.origin = Origin(*connection.remote, listener, number, refused)
        self.last_active_s = env.clock.steady()
        self._tracing = dispatcher.tracing
        self._scope: RequestScope | None = None
        # Replies in request order. A ready head is written at once; the rest wait for the head.
        self._pending: deque[_Slot] = deque()
        self._room = asyncio.Event()
        self._held_bytes = 0  # of replies that had to wait, since they last were none
        self._answering = False
        self._parked = False
        self._closed = False
        self.met_fault = False  # of this node, in a request; and so was hung up on
        self.said_garbage = False  # the same
        self._watcher: asyncio.Task[None] | None = None
        self._looks: asyncio.TimerHandle | None = None
        self._ahead: asyncio.Task[memoryview | None] | None = None  # the next frame, or the end

    @property
    def idle(self) -> bool:
        """Nothing is asked that is not answered."""
        return not self._answering and not self._pending

    async def serve(self) -> None:
        """Read and answer until the end of the stream, or a frame that is not the protocol."""
        if self._tracing is not None:
            self._scope = self._tracing.scope_of(self.origin.connection)
            enter_scope(self._scope)
        try:
            async with asyncio.TaskGroup() as group:
                await self._serve_frames(group)
                if self._watcher is not None:
                    self._watcher.cancel()
        except* AssertionError as broken:
            self.env.die(broken.exceptions[0])
        except* ConnectionLost:
            pass  # the client went away; what it sent was appended or not, and nobody is waiting
        except* (FrameRefused, RequestRefused) as refused:
            self.said_garbage = True
            self._say("client_request_refused", str(refused.exceptions[0]))
        except* Exception as failed:  # noqa: BLE001 - the connection loop: said in full, and the client sees a closed door
            self.met_fault = True
            self._say("client_request_failed", "".join(traceback.format_exception(failed)))
        finally:
            if self._looks is not None:
                self._looks.cancel()
            self._forget_pending()
            self.origin.refused.close()
            self.connection.close()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending) + self._answering

    def _say(self, event: str, reason: str) -> None:
        remote = f"{self.origin.host}:{self.origin.port}"
        self.env.log.warn(event, remote=remote, cause=reason, then="connection closed")

    async def _serve_frames(self, group: asyncio.TaskGroup) -> None:
        connection, dispatcher, clock = self.connection, self.dispatcher, self.env.clock
        while True:
            frame = await (
                self._read_meanwhile() or connection.read_frame(dispatcher.request_bytes_max)
            )
            if frame is None:
                await self._until_pending(at_most=0)  # one that has said all may still listen
                return
            self.last_active_s = clock.steady()
            call = dispatcher.open(frame, self.origin, self.last_active_s)
            if self._scope is not None:
                self._follow(self._scope, call)
            del frame  # a parked request must not hold the bytes of its frame
            if call.api.begin is not None:
                preparing = call.prepare()
                if preparing is not None:
                    await preparing
                self._begin(call)
            else:
                await self._until_answered(call, group)
            if self._held_bytes > HELD_BYTES_MAX:
                await self._until_pending(at_most=0)
                self._held_bytes = 0
            elif len(self._pending) >= PENDING_REPLIES_MAX:
                await self._until_pending(at_most=PENDING_REPLIES_MAX - 1)
            del call  # nor a connection that is silent the last thing that it said
            await connection.drain()

    def _follow(self, scope: RequestScope, call: Call) -> None:
        """Whatever this task does from here on, it does for this request."""
        scope.correlation_id = call.request.correlation_id
        if self._tracing is not None and self._tracing.begins:
            self._tracing.began(scope, call)
        elif scope.is_told:  # the request log was turned off since the request before
            scope.is_told = False

    async def _until_answered(self, call: Call, group: asyncio.TaskGroup) -> None:
        if call.api.parks:
            if self._watcher is None:
                self._watcher = group.create_task(self._watch_for_close(), name="watch for close")
            if self._closed:
                return
            self._parked = True
            if self._looks is None:
                look = partial(self._look_ahead, group)
                self._looks = self.env.clock.call_later(LOOK_AHEAD_S, look)
        self._answering = True
        try:
            reply = await call.run()
        finally:
            self._answering = self._parked = False
        if self._pending:
            slot = _Slot()
            self._pending.append(slot)
            self._held_bytes += 0 if reply is None else sum(map(len, reply))
            self._answered(slot, reply)
        elif reply is not None:
            self._held_bytes = 0
            self.connection.write(reply)

    def _begin(self, call: Call) -> None:
        slot = _Slot()
        self._pending.append(slot)
        slot.cancel = call.begin(partial(self._answered, slot))
        if self.met_fault:
            self._forget(slot)

    def _answered(self, slot: _Slot, reply: Encoded | UnspeakableReply | None) -> None:
        slot.is_ready, slot.reply = True, reply
        slot.cancel = None  # it leads back here: a cycle would hold the request until Python's collector comes
        pending = self._pending
        while pending and pending[0].is_ready:
            head = pending.popleft().reply
            if isinstance(head, UnspeakableReply):
                # Nothing may be written past the gap. Closing ends the reading, and so the serving.
                self._say("client_request_failed", str(head))
                self.met_fault = True
                self._forget_pending()
                self.connection.close()
                return
            if head is not None:
                self.connection.write(head)
        self._room.set()

    def _forget_pending(self) -> None:
        for slot in self._pending:
            self._forget(slot)
        self._pending.clear()
        self._room.set()

    def _forget(self, slot: _Slot) -> None:
        if slot.cancel is not None and not slot.is_ready:
            slot.cancel()

    async def _until_pending(self, *, at_most: int) -> None:
        while len(self._pending) > at_most:
            self._room.clear()
            await self._room.wait()

    async def _watch_for_close(self) -> None:
        """A parked request whose connection is lost must not hold its place until it is answered."""
        await self.connection.wait_closed()
        self._closed = True
        if self._parked:
            raise ConnectionLost("the client closed the connection while its request was parked")

    def _look_ahead(self, group: asyncio.TaskGroup) -> None:
        self._looks = None
        if self._parked and not self._closed and self._ahead is None:
            self._ahead = group.create_task(self._read_ahead(), name="read ahead")

    async def _read_ahead(self) -> memoryview | None:
        """One frame and no more: the rest waits in the kernel's buffers."""
        frame = await self.connection.read_frame(self.dispatcher.request_bytes_max)
        if frame is None and self._parked:
            raise ConnectionLost("the client said its last while its request was parked")
        return frame

    def _read_meanwhile(self) -> "asyncio.Task[memoryview | None] | None":
        ahead, self._ahead = self._ahead, None
        return ahead
