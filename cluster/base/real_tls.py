"""An accepted connection whose listener has TLS: it is there from the first byte on, and shakes hands when it is told to.

INVARIANT  a connection that still shakes hands can be counted, and ended at once, by whoever bounds strangers.
PREVENTS   strangers who never shake hands holding the descriptors that the logs need.
PROVED BY  tests/node/test_peer_tls.py::test_strangers_that_never_shake_hands_have_the_same_few_places_and_seconds_as_without_tls
"""

import asyncio
import socket
import ssl
from typing import Any, Final

from .errors import ConnectionLost
from .real_connection import RealConnection

HANDSHAKE_TIMEOUT_S: Final = 20.0  # whoever shakes hands has a shorter deadline of its own


class TlsConnection(RealConnection):
    """See `ports.Connection`."""

    def __init__(self, accepted: socket.socket, tls: ssl.SSLContext, *parts: Any) -> None:
        super().__init__(*parts)
        self._accepted = accepted
        self._tls = tls
        self._shaking: asyncio.Future[Any] | None = None
        self._remote = address_of(accepted)
        self._registry[self] = None

    async def secure(self) -> None:
        assert self._shaking is None, "hands are shaken once"
        self._check_end()
        shaking = self._loop.connect_accepted_socket(
            lambda: self,
            self._accepted,
            ssl=self._tls,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        )
        self._shaking = asyncio.ensure_future(shaking)
        try:
            await self._shaking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._check_end()  # `abort` was called
            raise
        except (OSError, TimeoutError) as error:
            self._lost = ConnectionLost(f"the TLS handshake with {self._name()} failed: {error}")
            self.abort()
            raise self._lost from error
        finally:
            if self._transport is None:
                self._accepted.close()  # the loop does it, too, but not for a handshake that has not begun

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._left and self._transport is not None:
            self._transport.abort()  # in the same turn of the loop as `abort`

    def close(self) -> None:
        if self._transport is None:
            self.abort()  # nothing was said that could still be sent
        else:
            super().close()

    def abort(self) -> None:
        super().abort()
        if self._transport is not None:
            return
        if self._shaking is None:
            self._accepted.close()
        elif not self._shaking.done():
            self._shaking.cancel()  # the loop closes the socket then
        # No transport tells of an end before the handshake's.
        self._registry.pop(self, None)
        if not self._closed.done():
            self._closed.set_result(None)


def address_of(accepted: socket.socket) -> tuple[str, int]:
    """Nothing for a connection that has ended before it could be looked at."""
    try:
        name = accepted.getpeername()
    except OSError:
        return "", 0
    return str(name[0]), int(name[1])
