"""How this node comes to a peer: an address, a connection, the greetings.

INVARIANT  all Trouble of it is REFUSED, as nothing was asked yet; no connection is left over.
PREVENTS   a caller that must take what it never said for done.
PROVED BY  tests/cluster/wire/test_peer_door.py::test_what_can_not_have_been_sent_is_refused
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..base.errors import Outcome, Trouble
from ..base.ids import BrokerId
from ..base.ports import Connection, Env
from .peer_handshake import FolderOfBefore, Identity, PeerName, PeerRefused, greet
from .peer_pulse import PeerTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTls:
    """TLS both ways, when the network between the nodes is not trusted."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    # `keystore` -> when the first of its certificates expires, `truststore` -> the last, in seconds since the epoch.
    not_after_s: Mapping[str, int] = field(default_factory=dict, compare=False)


class Dialer:
    def __init__(
        self,
        env: Env,
        me: Identity,
        cluster_id: Callable[[], str],
        address_of: Callable[[BrokerId], tuple[str, int] | None],
        times: PeerTimes,
        tls: PeerTls | None,
    ) -> None:
        self.closed = False
        self.on_folder_of_before: Callable[[BrokerId, int], None] = _nobody_minds
        self._env = env
        self._me = me
        self._cluster_id = cluster_id
        self._address_of = address_of
        self._times = times
        self._tls = tls

    async def dial(self, node_id: BrokerId, channel: str) -> tuple[Connection, PeerName]:
        """Connect and greet."""
        address = self._address_of(node_id)
        if self.closed or address is None:
            why = "the peer door is closed" if self.closed else f"no address of node {node_id}"
            raise Trouble(why, Outcome.REFUSED)
        times = self._times
        connection = await self._env.net.connect(
            *address, tls=None if self._tls is None else self._tls.client, timeout_s=times.connect_s
        )
        name: PeerName | None = None
        try:
            async with asyncio.timeout(times.handshake_s):
                name = await greet(connection, self._me, self._cluster_id(), node_id, channel)
            return connection, name
        except TimeoutError:
            why = f"node {node_id} at {address[0]}:{address[1]} did not greet in {times.handshake_s} s"
            raise Trouble(why, Outcome.REFUSED) from None
        except FolderOfBefore as refused:
            self.on_folder_of_before(node_id, refused.seen)
            raise
        except PeerRefused:
            raise
        except Trouble as trouble:
            raise Trouble(f"greeting node {node_id}: {trouble}", Outcome.REFUSED) from trouble
        finally:
            if name is None:
                connection.close()


def _nobody_minds(_node_id: BrokerId, _seen: int) -> None:
    return
