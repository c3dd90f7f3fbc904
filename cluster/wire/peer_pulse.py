"""Whether the other end of a connection still lives.

INVARIANT  the connection of a peer that says nothing ends; that of one that is merely slow, or not listened to, stays.
PREVENTS   a cut cable taken for a quiet peer; and a node that was stopped itself blaming all the others.
PROVED BY  tests/cluster/wire/test_peer_door.py::test_a_stopped_peer_is_let_go_and_one_that_was_stopped_itself_blames_nobody

Both ends ping when they have nothing else to say. An end that waits for bytes and got none for `silence_s` ends the
connection. One that does not read (it is busy) blames nobody, nor does one that was itself stopped: a check that
comes late looks again before it accuses.
"""

from dataclasses import dataclass

from ..base.ports import Connection
from .peer_frames import PING


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTimes:
    """How long things may take between peers, in seconds."""

    ping_s: float = 0.4
    silence_s: float = 1.6
    connect_s: float = 1.0
    handshake_s: float = 2.0
    retry_min_s: float = 0.02
    retry_max_s: float = 0.5

    @property
    def claim_s(self) -> float:
        """How long a peer's older connection is listened to when another one claims its node id."""
        return self.ping_s * 2.5

    @property
    def breath_s(self) -> float:
        """Longer than a living peer says nothing: what it says just after a tick spares it the ping of the next."""
        return self.ping_s * 2.1


class Pulse:
    """Of one connection: when it was last heard, and whether anything was said since the last tick."""

    __slots__ = ("_bytes", "_heard", "_times", "connection", "reading", "spoke", "why")

    def __init__(self, connection: Connection, times: PeerTimes, now: float) -> None:
        self.connection = connection
        self._times = times
        self._heard = now
        self._bytes = -1
        self.reading = False
        self.spoke = False
        self.why = ""

    def tick(self, now: float, *, late: bool) -> bool:
        """Ping when nothing else was said; False once the peer has been silent for too long."""
        received = self.connection.received_bytes
        if received != self._bytes or late or not self.reading:
            self._bytes, self._heard = received, now
        elif now - self._heard > self._times.silence_s:
            self.why = f"it said nothing for {now - self._heard:.1f} s"
            self.connection.abort()
            return False
        if not self.spoke:
            self.connection.write([PING])
        self.spoke = False
        return True
