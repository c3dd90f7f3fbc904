"""The door that nodes speak through: messages, requests and streams between peers that have proved who they are.

INVARIANT  a request's Trouble says REFUSED only if the peer surely did not do it.
PREVENTS   a command done twice, because its caller was told that it had not been done.
PROVED BY  tests/cluster/wire/test_peer_door.py::test_a_request_whose_answer_is_lost_may_have_been_done

Each node dials each peer it watches, so a pair holds two control connections; what a node sends goes over the one it
dialed, or, while that is down, over the one that the peer dialed. Messages on one connection keep their order; over
a change of connections they may be lost or overtake each other, as in any network. A stream has a connection
of its own. A handler that raises Trouble answers with it; FrameRefused ends the connection; all else ends the node.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.complaints import Complaints
from ..base.errors import ConfigRefused, Outcome, Trouble
from ..base.host_names import is_loopback
from ..base.ids import BrokerId
from ..base.ports import Buffer, Connection, Env, Listener
from ..base.request_scope import HEADER, as_header, current_scope
from . import peer_frames as frames
from .peer_dialing import Dialer, PeerTls
from .peer_frames import Envelope, pack_frame
from .peer_guests import Guests
from .peer_handshake import (
    CONTROL,
    STREAM,
    Identity,
    PeerName,
    PeerRefused,
    cluster_refusal,
    printable,
)
from .peer_link import LinkCalls, PeerCounters, PeerLink, PeerStream, PeerWire
from .peer_lives import LIFE, PeerLives, pack_life
from .peer_pulse import PeerTimes
from .peer_serving import OnMessage, OnRequest, OnStream, PeerServing, PeerTracer

__all__ = ["PeerCounters", "PeerDoor", "PeerStream", "PeerTimes", "PeerTls"]


class PeerDoor:
    """Everything that this node says to other nodes, and they to it."""

    def __init__(
        self,
        env: Env,
        node_id: BrokerId,
        *,
        secret: bytes,
        cluster_id: Callable[[], str],
        address_of: Callable[[BrokerId], tuple[str, int] | None],
        times: PeerTimes = PeerTimes(),  # noqa: B008 - it is frozen
        tls: PeerTls | None = None,
        lives: PeerLives | None = None,
    ) -> None:
        self.node_id = node_id
        self.counters = PeerCounters()
        self.times = times
        self.me = Identity(
            env=env,
            node_id=node_id,
            incarnation=env.rng.getrandbits(62),
            secret=secret,
            lives=lives or PeerLives(),
        )
        self._env = env
        self._cluster_id = cluster_id
        self._tls = tls
        self._dialer = Dialer(env, self.me, cluster_id, address_of, times, tls)
        self._listener: Listener | None = None
        self._links: dict[BrokerId, PeerLink] = {}
        self._watched: dict[PeerWire | PeerStream, None] = {}
        self._latest: dict[BrokerId, int] = {}  # which process of a node was let in last
        self._on_up: list[Callable[[BrokerId], None]] = []
        self._on_gone: list[Callable[[BrokerId], None]] = []
        self._refusals: dict[BrokerId, str] = {}
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due = 0.0
        self._complaints = Complaints(env.log, env.clock.steady)
        self._serving = PeerServing(env, node_id, self.counters, self._complaints)
        self.on_message(LIFE, self.me.lives.hear)
        self._guests = Guests(env, self.me, cluster_id, times, self.counters, self._complaints)
        self._calls = LinkCalls(
            dial=self._dial_control,
            take=self._take,
            up=self._up,
            gone=self._gone,
            down=self._down,
            failed=self._dial_failed,
        )

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen. Without a secret only on the loopback, where the machine's own users are trusted."""
        if not self.me.secret and not is_loopback(host):
            raise ConfigRefused(
                f"peer.listener {host}:{port} can be reached from other machines, so peer.secret must be set"
            )
        self._listener = await self._env.net.listen(
            host,
            port,
            self._serve,
            tls=None if self._tls is None else self._tls.server,
            # Clients, however many, must not keep the nodes apart.
            essential=True,
        )
        return self._listener.address

    async def close(self) -> None:
        """Stop listening, end every connection. Requests that wait are told that they may have been done."""
        self._closed = self._dialer.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            await self._listener.close()
        for watched in list(self._watched):
            watched.end("the peer door was closed")
        leaving = [link.task for link in self._links.values() if link.task is not None]
        for task in leaving:
            task.cancel()
        self._serving.close()
        if leaving:
            await asyncio.wait(leaving)

    # One-way messages.

    def send(
        self, node_id: BrokerId, kind: str, header: Mapping[str, Any], payload: Buffer = b""
    ) -> bool:
        """Send now or never; False when it surely was not sent."""
        wire = self._wire(node_id)
        if wire is None or not wire.post(pack_frame(frames.message(kind, header), (payload,))):
            self.counters.messages_dropped += 1
            return False
        self.counters.messages_sent += 1
        return True

    def on_message(self, kind: str, handler: OnMessage) -> None:
        self._serving.on_message[kind] = handler

    # Requests.

    async def request(
        self,
        node_id: BrokerId,
        kind: str,
        header: Mapping[str, Any],
        payload: Buffer = b"",
        *,
        timeout_s: float,
    ) -> tuple[dict[str, Any], memoryview]:
        """The answer of the peer's handler. Trouble REFUSED: surely not done; UNKNOWN: it may have been."""
        scope = current_scope()
        if scope is None:
            return await self._request(node_id, kind, header, payload, timeout_s)
        started, outcome = self._env.clock.steady(), "done"
        try:
            own = {**header, HEADER: as_header(scope)}
            return await self._request(node_id, kind, own, payload, timeout_s)
        except Trouble as trouble:
            outcome = trouble.outcome.value
            raise
        finally:
            took_s = self._env.clock.steady() - started
            scope.waited_for_peer(took_s)
            if self._serving.tracer is not None:
                self._serving.tracer.asked(scope, node_id, kind, took_s, outcome)

    def follow_requests(self, tracer: PeerTracer) -> None:
        """Tell it of every request that is asked or served for a client's."""
        self._serving.tracer = tracer

    async def _request(
        self,
        node_id: BrokerId,
        kind: str,
        header: Mapping[str, Any],
        payload: Buffer,
        timeout_s: float,
    ) -> tuple[dict[str, Any], memoryview]:
        what = f"{kind} at node {node_id}"
        sent = False
        try:
            async with asyncio.timeout(timeout_s):
                wire = self._wire(node_id) or await self._link(node_id).connected()
                number = wire.ask(
                    lambda number: pack_frame(frames.ask(number, kind, header), (payload,))
                )
                if number is None:
                    raise Trouble(f"{what}: too much waits for it already", Outcome.REFUSED)
                sent = True
                self.counters.requests_sent += 1
                try:
                    return await wire.asked[number]
                finally:
                    wire.asked.pop(number, None)
        except TimeoutError:
            outcome = Outcome.UNKNOWN if sent else Outcome.REFUSED
            raise Trouble(f"{what}: no answer in {timeout_s} s", outcome) from None

    def on_request(self, kind: str, handler: OnRequest) -> None:
        self._serving.on_request[kind] = handler

    # Streams.

    async def open_stream(
        self, node_id: BrokerId, kind: str, hello: Mapping[str, Any]
    ) -> PeerStream:
        """A connection of its own, taken by the peer's handler of that kind. Trouble when there is none."""
        connection, name = await self._dialer.dial(node_id, STREAM)
        stream = PeerStream(self._env, connection, name, self.times, self.counters)
        what = f"a {kind} stream to node {node_id}"
        try:
            async with asyncio.timeout(self.times.handshake_s):
                stream.write({"open": kind, "hello": hello})
                reply = await stream.read()
            if reply is None or reply[0].get("opened") is not True:
                why = reply[0].get("refused") if reply else "the connection was closed"
                raise Trouble(f"no {what}: {printable(str(why))}", Outcome.REFUSED)
            self._look_after(stream)
        except TimeoutError:
            raise Trouble(f"no {what}: no answer in {self.times.handshake_s} s") from None
        finally:
            if stream not in self._watched:
                stream.abort()
        return stream

    def on_stream(self, kind: str, handler: OnStream) -> None:
        self._serving.on_stream[kind] = handler

    # Who is there.

    def tell_life(self) -> None:
        """This node's is another one than it said when it was let in."""
        self._tell_of_lives(self.connected(), {"life": pack_life(self.me.lives.mine())})

    def _tell_of_lives(self, node_ids: Iterable[BrokerId], header: dict[str, Any]) -> None:
        for node_id in node_ids:
            if (wire := self._wire(node_id)) is not None and wire.name.life is not None:
                self.send(node_id, LIFE, header)

    def on_folder_of_before(self, call: Callable[[BrokerId, int], None]) -> None:
        """A peer has seen a life of this node's folder that is not in its past."""
        self._dialer.on_folder_of_before = call

    def watch(self, node_ids: Iterable[BrokerId]) -> None:
        """From now on keep a connection to each of these, and to no others."""
        wanted = sorted(frozenset(node_ids) - {self.node_id})
        for node_id, link in self._links.items():
            link.wanted = node_id in wanted
            if not link.wanted:
                link.kick()
                if link.wire is not None and not link.wire.asked:
                    link.wire.end("it is not watched any more")
        for node_id in wanted:
            link = self._link(node_id)
            link.wanted = True
            link.start()

    def on_up(self, call: Callable[[BrokerId], None]) -> None:
        """A connection to a node that is watched was opened: its process is there, maybe a new one."""
        self._on_up.append(call)

    def on_gone(self, call: Callable[[BrokerId], None]) -> None:
        """The connection ended and its machine refuses another one: the process is dead. Said once a death."""
        self._on_gone.append(call)

    def incarnation_of(self, node_id: BrokerId) -> int | None:
        """Of the process that there is a connection with; it differs after a restart."""
        return None if (wire := self._wire(node_id)) is None else wire.name.incarnation

    def cluster_of(self, node_id: BrokerId) -> str:
        """What it has proved to belong to; empty where it knows of none, or is not there."""
        return "" if (wire := self._wire(node_id)) is None else wire.name.cluster_id

    def has_process(self, node_id: BrokerId, incarnation: int) -> bool:
        """Whether there is a connection with that very process, whoever opened it."""
        wires = (self._link(node_id).wire, self._guests.wires.get(node_id))
        return incarnation in [each.name.incarnation for each in wires if each and not each.ended]

    def connected(self) -> list[BrokerId]:
        """The nodes that a message can be sent to now."""
        return [each for each in sorted({*self._links, *self._guests.wires}) if self._wire(each)]

    def refusal_of(self, node_id: BrokerId) -> str | None:
        """Why that node does not want this one, when that is what it last said."""
        return self._refusals.get(node_id)

    # Inside: connections that this node opens.

    def _wire(self, node_id: BrokerId) -> PeerWire | None:
        assert node_id != self.node_id, "a node does not talk to itself over the network"
        link = self._links.get(node_id)
        if link is not None and link.wire is not None and not link.wire.ended:
            return link.wire
        return wire if (wire := self._guests.wires.get(node_id)) and not wire.ended else None

    def _link(self, node_id: BrokerId) -> PeerLink:
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = PeerLink(self._env, node_id, self.times, self._calls)
        return link

    async def _dial_control(self, node_id: BrokerId) -> PeerWire:
        connection, name = await self._dialer.dial(node_id, CONTROL)
        return self._new_wire(connection, name)

    def _dial_failed(self, node_id: BrokerId, trouble: Trouble) -> None:
        event = "peer_unreachable"
        self._refusals.pop(node_id, None)
        if isinstance(trouble, PeerRefused):
            event = "peer_refuses"
            self._refusals[node_id] = str(trouble)
        self._complaints.warn(f"{event} {node_id}", event, node=node_id, cause=str(trouble))

    def _up(self, node_id: BrokerId) -> None:
        self._refusals.pop(node_id, None)
        self._env.log.info("peer_up", node=node_id)
        self._tell_of_lives([node_id], {"seen": self.me.lives.packed_seen()})
        for call in self._on_up:
            call(node_id)

    def _down(self, wire: PeerWire, why: str) -> None:
        if not self._closed:
            self._env.log.info("peer_lost", node=wire.name.node_id, cause=why)

    def _gone(self, node_id: BrokerId) -> None:
        self._env.log.info("peer_gone", node=node_id)
        for call in self._on_gone:
            call(node_id)

    # Inside: connections that peers open.

    async def _serve(self, connection: Connection) -> None:
        name = await self._guests.admit(connection)
        if name is None or self._closed:
            return
        if name.channel == STREAM:
            stream = PeerStream(self._env, connection, name, self.times, self.counters)
            self._look_after(stream)
            await self._serving.serve_stream(stream)
            return
        wire = self._new_wire(connection, name)
        self._guests.arrived(wire)
        link = self._links.get(name.node_id)
        if link is not None:
            link.kick()
        try:
            why = await wire.receive(self._take)
        finally:
            self._guests.left(wire)
        if link is None:  # else that one tells of the same end
            self._down(wire, why)

    # Inside: what comes.

    def _take(self, wire: PeerWire, envelope: Envelope, payload: memoryview) -> None:
        if envelope.type != frames.MESSAGE or not self._is_of_before(wire):
            self._serving.take(wire, envelope, payload)

    def _is_of_before(self, wire: PeerWire) -> bool:
        """Another process of that node has come since: what this one said may be of a disk that is no more."""
        latest = self._latest[wire.name.node_id]
        if wire.name.incarnation == latest:
            return False
        if not self.has_process(wire.name.node_id, latest):
            wire.end("another process of that node has been here since")
        return True

    # Inside: the clock.

    def _new_wire(self, connection: Connection, name: PeerName) -> PeerWire:
        self._latest[name.node_id] = name.incarnation
        wire = PeerWire(self._env, connection, name, self.times, self.counters)
        self._look_after(wire)
        return wire

    def _look_after(self, watched: PeerWire | PeerStream) -> None:
        self._watched[watched] = None
        if self._timer is None and not self._closed:
            self._tick_later()

    def _tick_later(self) -> None:
        self._tick_due = self._env.clock.steady() + self.times.ping_s
        self._timer = self._env.clock.call_later(self.times.ping_s, self._tick)

    def _tick(self) -> None:
        now = self._env.clock.steady()
        late = now > self._tick_due + self.times.ping_s  # this process did not run: nobody's fault
        ours = self._cluster_id()
        for watched in list(self._watched):
            sentence = cluster_refusal(ours, watched.name.cluster_id)
            if sentence is not None:
                watched.end(f"node {watched.name.node_id} is not of this cluster: {sentence}")
            if not watched.tick(now, late=late):
                del self._watched[watched]
        self._tick_later()
