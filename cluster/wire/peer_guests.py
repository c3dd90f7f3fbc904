"""Who comes to the peer door, until it is known.

INVARIANT  what strangers make this node hold is bounded: GUESTS_MAX connections, each for `handshake_s` and a frame
           (once more that time to go), with TLS and without.
PREVENTS   a stranger keeping the cluster's own nodes out, or filling a node, by opening connections.
PROVED BY  tests/cluster/wire/test_peer_strangers.py::test_silent_strangers_do_not_keep_a_peer_out
           tests/node/test_peer_tls.py::test_strangers_that_never_shake_hands_have_the_same_few_places_and_seconds_as_without_tls

Room is made by closing the connection that has been greeting for longest: a peer's greeting takes milliseconds.

Two processes with one node id: whoever comes second is refused while the first one's connection shows life. Not the
one that started later, as that would hand the id to the impostor; and not by the clock. A machine that lost its power
leaves a connection that shows none, and its new process comes in after `claim_s`.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ..base.complaints import Complaints
from ..base.errors import Trouble
from ..base.ids import BrokerId
from ..base.ports import Connection, Env
from .peer_handshake import Identity, PeerName, PeerRefused, challenge_guest, refuse
from .peer_link import PeerCounters, PeerWire
from .peer_lives import why_not
from .peer_pulse import PeerTimes

GUESTS_MAX: Final = 64


class Guests:
    """Lets peers in, and keeps the control connections that they opened."""

    def __init__(
        self,
        env: Env,
        me: Identity,
        cluster_id: Callable[[], str],
        times: PeerTimes,
        counters: PeerCounters,
        complaints: Complaints,
    ) -> None:
        self.wires: dict[BrokerId, PeerWire] = {}
        self._env = env
        self._me = me
        self._cluster_id = cluster_id
        self._times = times
        self._counters = counters
        self._complaints = complaints
        self._greeting: dict[Connection, None] = {}

    async def admit(self, connection: Connection) -> PeerName | None:
        """Who it is, proved and welcomed; None when it was refused."""
        if len(self._greeting) >= GUESTS_MAX:
            oldest = next(iter(self._greeting))
            del self._greeting[oldest]
            oldest.abort()
        self._greeting[connection] = None
        try:
            async with asyncio.timeout(self._times.handshake_s):
                await connection.secure()
                guest = await challenge_guest(connection, self._me, self._cluster_id())
                await self._give_place(guest.name, connection)
            self._note_life(guest.name, connection)
            guest.let_in(connection)
            return guest.name
        except TimeoutError:
            self._late(connection, "silent", "it did not prove itself in time")
            connection.abort()
        except PeerRefused as refused:
            self._refused(connection, "refused", str(refused))
            await self._see_off(connection)
        except Trouble as trouble:
            if connection in self._greeting:
                self._refused(connection, "stranger", str(trouble))
            else:
                why = f"it made room for others: {GUESTS_MAX} may greet at a time"
                self._late(connection, "crowd", why)
            await self._see_off(connection)
        finally:
            self._greeting.pop(connection, None)
        return None

    def _note_life(self, name: PeerName, connection: Connection) -> None:
        """PeerRefused when a later one has come in since the challenge."""
        lives = self._me.lives
        if seen := lives.seen_instead(name.node_id, name.life):
            sentence = f"node {name.node_id} is not let in: {why_not(name.life, seen)}"
            refuse(connection, sentence)
            raise PeerRefused(sentence)
        lives.saw(name.node_id, name.life)

    async def _see_off(self, connection: Connection) -> None:
        """Under TLS the other end has to say goodbye: it keeps its place until it has, or its time is over."""
        connection.close()
        try:
            async with asyncio.timeout(self._times.handshake_s):
                await connection.wait_closed()
        except TimeoutError:
            connection.abort()

    def _refused(self, connection: Connection, sort: str, why: str) -> None:
        self._counters.handshakes_refused += 1
        self._complaints.warn(sort, "peer_refused", remote=connection.remote, cause=why)

    def _late(self, connection: Connection, sort: str, why: str) -> None:
        """A node that stood still for a while, or somebody who said nothing. Nobody has shown a wrong secret."""
        self._counters.handshakes_late += 1
        self._complaints.warn(sort, "peer_refused", remote=connection.remote, cause=why)

    async def _give_place(self, name: PeerName, connection: Connection) -> None:
        """Wait until no other process of that node id shows life. PeerRefused when one does."""
        while (rival := self.wires.get(name.node_id)) is not None:
            if rival.ended or rival.name.incarnation == name.incarnation:
                return
            if await self._shows_life(rival):
                sentence = (
                    f"the node id {name.node_id} is taken: another process with it is connected "
                    f"from {rival.connection.remote[0]}; no two nodes may have the same node.id"
                )
                refuse(connection, sentence)
                raise PeerRefused(sentence)
            rival.end("another process took its place")

    async def _shows_life(self, rival: PeerWire) -> bool:
        """Whether something comes on its connection that was not under way before: two listens, the second counts."""
        received = -1
        times = self._times
        for listen_s in (times.claim_s - times.breath_s, times.breath_s):
            received = rival.connection.received_bytes
            try:
                async with asyncio.timeout(listen_s):
                    await rival.over.wait()
                    return False
            except TimeoutError:
                continue
        return rival.connection.received_bytes != received

    def arrived(self, wire: PeerWire) -> None:
        older = self.wires.get(wire.name.node_id)
        if older is not None:
            older.end("the peer opened another connection")
        self.wires[wire.name.node_id] = wire

    def left(self, wire: PeerWire) -> None:
        if self.wires.get(wire.name.node_id) is wire:
            del self.wires[wire.name.node_id]
