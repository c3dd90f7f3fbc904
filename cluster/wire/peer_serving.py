"""What this node does for its peers: hands messages on, answers requests, serves streams.

INVARIANT  whoever asked gets its answer, a trouble that says whether it was done, or loses the connection.
PREVENTS   a peer of another build waiting for an answer that nobody here knows to give.
PROVED BY  tests/cluster/wire/test_peer_door.py::test_a_request_that_the_peer_does_not_know_is_refused_with_a_sentence
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from ..base.complaints import Complaints
from ..base.errors import ConnectionLost, FrameRefused, Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Buffer, Env
from ..base.request_scope import HEADER, RequestScope, enter_scope, from_header
from . import peer_frames as frames
from .peer_frames import Envelope, pack_frame
from .peer_handshake import printable
from .peer_link import PeerCounters, PeerStream, PeerWire

OnMessage = Callable[[BrokerId, dict[str, Any], memoryview], None]
OnRequest = Callable[
    [BrokerId, dict[str, Any], memoryview], Awaitable[tuple[Mapping[str, Any], Buffer]]
]
OnStream = Callable[[BrokerId, dict[str, Any], PeerStream], Awaitable[None]]


class PeerTracer(Protocol):
    """Whoever follows clients' requests through nodes (`node/tracing`). Times are how long it took, until now."""

    def asked(
        self, scope: RequestScope, node_id: BrokerId, kind: str, took_s: float, outcome: str
    ) -> None: ...

    def served(
        self, scope: RequestScope, node_id: BrokerId, kind: str, took_s: float, outcome: str
    ) -> None: ...


# Requests of one connection that are being served at a time; more are refused, as messages wait behind none.
SERVED_AT_ONCE_MAX: Final = 1024


class PeerServing:
    """The handlers of one door, by kind."""

    def __init__(
        self, env: Env, node_id: BrokerId, counters: PeerCounters, complaints: Complaints
    ) -> None:
        self.on_message: dict[str, OnMessage] = {}
        self.on_request: dict[str, OnRequest] = {}
        self.on_stream: dict[str, OnStream] = {}
        self._env = env
        self._node_id = node_id
        self._counters = counters
        self._complaints = complaints
        self._answering: dict[asyncio.Task[None], None] = {}
        self.tracer: PeerTracer | None = None

    def close(self) -> None:
        for task in list(self._answering):
            task.cancel()

    async def serve_stream(self, stream: PeerStream) -> None:
        try:
            match await stream.read():
                case [{"open": str(kind), "hello": dict(hello)}, _]:
                    handler = self.on_stream.get(kind)
                case _:
                    raise FrameRefused("a stream did not begin with what it is for")
            if handler is None:
                why = f"node {self._node_id} knows no stream {kind!r:.100}; it may be of an older build"
                stream.write({"refused": why})
            else:
                stream.write({"opened": True})
                await handler(stream.peer_id, hello, stream)
        except ConnectionLost as lost:
            self._env.log.info("peer_stream_lost", node=stream.peer_id, cause=str(lost))
        except Trouble as trouble:
            self._complaints.warn(
                f"stream {stream.peer_id}",
                "peer_stream_ended",
                node=stream.peer_id,
                cause=str(trouble),
            )
        finally:
            stream.close()

    def take(self, wire: PeerWire, envelope: Envelope, payload: memoryview) -> None:
        if envelope.type == frames.MESSAGE:
            on_message = self.on_message.get(envelope.kind)
            if on_message is None:
                self._unknown(wire, envelope)
            else:
                on_message(wire.name.node_id, envelope.header, payload)
        elif envelope.type == frames.ASK:
            self._asked(wire, envelope, payload)
        else:
            waiting = wire.asked.get(envelope.number)
            if waiting is None or waiting.done():
                return  # whoever asked has given up
            if envelope.type == frames.ANSWER:
                waiting.set_result((envelope.header, payload))
            else:
                waiting.set_exception(Trouble(printable(envelope.sentence), envelope.outcome))

    def _unknown(self, wire: PeerWire, envelope: Envelope) -> None:
        self._counters.messages_unknown += 1
        self._complaints.warn(
            f"unknown {wire.name.node_id}",
            "peer_message_unknown",
            node=wire.name.node_id,
            kind=printable(envelope.kind),
        )

    def _asked(self, wire: PeerWire, envelope: Envelope, payload: memoryview) -> None:
        handler = self.on_request.get(envelope.kind)
        if handler is None:
            why = f"node {self._node_id} knows no request {envelope.kind!r:.100}; it may be of an older build"
        elif wire.serving >= SERVED_AT_ONCE_MAX:
            why = f"node {self._node_id} serves {wire.serving} requests of this node already"
        else:
            name = f"{envelope.kind} of node {wire.name.node_id}"
            answering = self._answer(wire, envelope, payload, handler)
            task = self._env.tasks.spawn(answering, name=name)
            self._answering[task] = None
            wire.serving += 1  # from here on: many may come before one of them begins
            task.add_done_callback(lambda task: self._answered(wire, task))
            return
        wire.post(pack_frame(frames.trouble(envelope.number, why, Outcome.REFUSED)))

    def _answered(self, wire: PeerWire, task: asyncio.Task[None]) -> None:
        self._answering.pop(task, None)
        wire.serving -= 1

    async def _answer(
        self, wire: PeerWire, envelope: Envelope, payload: memoryview, handler: OnRequest
    ) -> None:
        self._counters.requests_served += 1
        scope = from_header(envelope.header.pop(HEADER, None))
        started = 0.0
        if scope is not None:
            enter_scope(scope)
            started = self._env.clock.steady()
        outcome = "done"
        try:
            header, body = await handler(wire.name.node_id, envelope.header, payload)
            reply = pack_frame(frames.answer(envelope.number, header), (body,))
        except FrameRefused as refused:
            wire.end(str(refused))
            return
        except Trouble as trouble:
            outcome = trouble.outcome.value
            reply = pack_frame(frames.trouble(envelope.number, str(trouble), trouble.outcome))
        if scope is not None and self.tracer is not None:
            served_s = self._env.clock.steady() - started
            self.tracer.served(scope, wire.name.node_id, envelope.kind, served_s, outcome)
        if not wire.post(reply):
            wire.end("it does not take its answers")
