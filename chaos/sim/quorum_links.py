"""The least that a quorum needs of a peer door: one connection to each other node, to speak on.

Each node dials every other one, and hears on the connections that others dialed: so what two nodes say to each other
travels on two connections, and what one says before and after a reset on two more. The order between them is chance.
"""

import functools
from collections.abc import Mapping
from typing import Final

from fencepost.cluster.base.errors import ConnectionLost, FrameRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Connection
from fencepost.cluster.quorum.raft_shell import Quorum

from .node import SimEnv

PORT: Final = 9192
FRAME_MAX: Final = 64 * 1024 * 1024
RETRY_S: Final = (0.02, 0.5)
DIAL_S: Final = 1.0
TRY_S, TRIES = 0.01, 20  # of what is late: its connection may be gone by then, and the next not up


def host_of(node_id: BrokerId) -> str:
    return f"node-{node_id}"


def write_frame(connection: Connection, frame: bytes) -> None:
    connection.write([len(frame).to_bytes(4, "big") + frame])


class QuorumLinks:
    """See `transport.Links`. A frame may be lost, late or there twice, which is more than TCP would do."""

    def __init__(
        self, env: SimEnv, node_id: BrokerId, peers: Mapping[BrokerId, tuple[str, int]]
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._peers = peers
        self._quorum: Quorum | None = None
        self._connections: dict[BrokerId, Connection] = {}
        self.loss_odds = 0.0
        self.late_odds = 0.0  # that it comes after what is sent later
        self.twice_odds = 0.0

    def send(self, node_id: BrokerId, frame: bytes) -> None:
        rng = self._env.rng
        if self.loss_odds and rng.random() < self.loss_odds:
            return
        if self.twice_odds and rng.random() < self.twice_odds:
            self._send_later(node_id, frame)
        if self.late_odds and rng.random() < self.late_odds:
            self._send_later(node_id, frame)
        else:
            self._send_now(node_id, frame)

    def _send_later(self, node_id: BrokerId, frame: bytes) -> None:
        wait = self._env.rng.choice((0.01, 0.1, 1.0)) * self._env.rng.random()
        self._env.clock.call_later(wait, lambda: self._send_late(node_id, frame, TRIES))

    def _send_late(self, node_id: BrokerId, frame: bytes, tries: int) -> None:
        """Also to the process that came after the one for which it was."""
        if not self._send_now(node_id, frame) and tries:
            again = functools.partial(self._send_late, node_id, frame, tries - 1)
            self._env.clock.call_later(TRY_S, again)

    def _send_now(self, node_id: BrokerId, frame: bytes) -> bool:
        connection = self._connections.get(node_id)
        if connection is None:
            return False
        write_frame(connection, frame)
        return True

    async def open(self, quorum: Quorum) -> None:
        self._quorum = quorum
        await self._env.net.listen(host_of(self._node_id), PORT, self._hear)
        for peer in sorted(self._peers):
            if peer != self._node_id:
                self._env.tasks.spawn(self._keep_up(peer), name=f"link to {peer}")

    async def _hear(self, connection: Connection) -> None:
        assert self._quorum is not None
        hello = await connection.read_frame(FRAME_MAX)
        if hello is None:
            return
        peer = BrokerId(int(bytes(hello)))
        while (frame := await connection.read_frame(FRAME_MAX)) is not None:
            self._quorum.on_frame(peer, frame)

    async def _keep_up(self, peer: BrokerId) -> None:
        assert self._quorum is not None
        wait, was_up = RETRY_S[0], False
        while True:
            try:
                connection = await self._env.net.connect(*self._peers[peer], timeout_s=DIAL_S)
            except ConnectionLost as lost:
                if was_up and "refused" in str(lost):
                    was_up = False
                    self._quorum.on_peer_gone(peer)
                await self._env.clock.sleep(wait * self._env.rng.uniform(0.5, 1))
                wait = min(RETRY_S[1], 2 * wait)
                continue
            wait, was_up = RETRY_S[0], True
            write_frame(connection, str(self._node_id).encode())
            self._connections[peer] = connection
            self._quorum.on_peer_up(peer)
            try:
                await connection.read_frame(FRAME_MAX)
            except (ConnectionLost, FrameRefused):
                pass
            del self._connections[peer]
            connection.close()
