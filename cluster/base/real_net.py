"""The real network: listening and connecting. The connection itself is in `real_connection.py`.

INVARIANT  running out of descriptors pauses accepting; it never ends the listener or takes those of the logs.
PREVENTS   ten thousand idle connections taking a node down.
PROVED BY  tests/cluster/base/test_real_net.py::test_a_listener_outlives_the_end_of_the_descriptors
"""

import asyncio
import errno
import importlib
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from .errors import NO_DESCRIPTOR_ERRNOS, ConnectionLost, ConnectionRefused, Outcome, Trouble
from .framing import SCRATCH_SIZE
from .ports import Accepted, Connection, Disk, Log, OnHttp, OnHttpHead, Tasks
from .real_connection import RealConnection
from .real_tls import HANDSHAKE_TIMEOUT_S, TlsConnection, address_of

if TYPE_CHECKING:
    from .real_http import RealHttp

HTTP_MODULE: Final = "fencepost.cluster.base.real_http"
BACKLOG: Final = 4096
ACCEPTS_AT_ONCE: Final = 256  # then the loop's other work has its turn
ACCEPT_PAUSE_S: Final = 0.2
CLOSE_TIMEOUT_S: Final = 1.0  # for all connections together, when the node stops
OUT_OF_RESOURCES: Final = NO_DESCRIPTOR_ERRNOS | {errno.ENOBUFS, errno.ENOMEM}
# Linux hands errors of a connection that ended before it was accepted to `accept` (its manual page).
GONE_ALREADY: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.ENETDOWN,
        errno.EPROTO,
        errno.ENOPROTOOPT,
        errno.EHOSTDOWN,
        errno.ENONET,
        errno.EHOSTUNREACH,
        errno.EOPNOTSUPP,
        errno.ENETUNREACH,
        errno.EPERM,  # a firewall's rule
        errno.ETIMEDOUT,
    }
)
# The share of the process's descriptors that connections may have; logs and indexes need the others.
CONNECTION_SHARE: Final = 0.75

OnConnect = Callable[[Connection], Awaitable[None]]
# Serves a socket that was accepted, until its connection ends.
OnAccept = Callable[[socket.socket], Coroutine[Any, Any, None]]


class RealNet:
    """See `ports.Net`."""

    def __init__(self, disk: Disk, tasks: Tasks, log: Log) -> None:
        self._disk = disk
        self._tasks = tasks
        self._log = log
        self._scratch = bytearray(SCRATCH_SIZE)
        self.connections = 0  # accepted ones, also those that still shake hands
        self._open: dict[RealConnection, None] = {}
        self._listeners: dict[RealListener, None] = {}
        self.descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.connections_max = int(self.descriptors_max * CONNECTION_SHARE)
        self.pauses = 0

    async def listen(
        self,
        host: str,
        port: int,
        on_connect: OnConnect,
        *,
        tls: ssl.SSLContext | None = None,
        essential: bool = False,
    ) -> "RealListener":
        return await self._listen(
            host, port, lambda accepted: self.serve(accepted, on_connect, tls), essential=essential
        )

    async def listen_http(
        self,
        host: str,
        port: int,
        serve: OnHttp,
        *,
        body_bytes_max: int,
        judge: OnHttpHead | None = None,
    ) -> "RealListener":
        doors: list[RealHttp] = []

        async def on_accept(accepted: socket.socket) -> None:
            if not doors:
                # aiohttp takes 0.3 s to import: a node starts without it, and its loop does not wait for it.
                try:
                    module = await self._disk.run(importlib.import_module, HTTP_MODULE)
                except OSError as error:
                    accepted.close()
                    if error.errno not in OUT_OF_RESOURCES:
                        raise
                    self._log.info("http_connection_failed", cause=str(error))
                    return  # the next one may find a descriptor to read it with
                doors.append(module.RealHttp(self._tasks, self._log, serve, judge, body_bytes_max))
            await doors[0].serve(accepted)

        return await self._listen(host, port, on_accept, essential=True)

    async def _listen(
        self, host: str, port: int, on_accept: OnAccept, *, essential: bool
    ) -> "RealListener":
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                # Several addresses, one port: the first one picks it when any will do.
                if sockets and port == 0:
                    address = (address[0], sockets[0].getsockname()[1], *address[2:])
                sockets.append(_bound(family, address))
        except OSError:
            for bound in sockets:
                bound.close()
            raise
        listener = RealListener(self, sockets, on_accept, essential=essential)
        self._listeners[listener] = None
        return listener

    def forget(self, listener: "RealListener") -> None:
        self._listeners.pop(listener, None)

    async def close(self) -> None:
        """Stop accepting; send what was queued; whoever does not take it soon loses it."""
        for listener in list(self._listeners):
            await listener.close()
        for close in (RealConnection.close, RealConnection.abort):
            leaving = [asyncio.ensure_future(each.wait_closed()) for each in self._open]
            for connection in list(self._open):
                close(connection)
            if leaving:
                _, late = await asyncio.wait(leaving, timeout=CLOSE_TIMEOUT_S)
                for waiting in late:
                    waiting.cancel()

    async def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = 10.0
    ) -> RealConnection:
        loop = asyncio.get_running_loop()
        connection = self.new_connection()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if tls else None,
                )
        # A name that no name server could be asked for (an empty label, one that is too long) is a UnicodeError, from idna.
        except (OSError, TimeoutError, ssl.SSLError, UnicodeError, OverflowError) as error:
            reason = str(error) or f"no answer in {timeout_s} s"
            message = f"can't connect to {host}:{port}: {reason}"
            if _was_refused(error):
                raise ConnectionRefused(message) from error
            raise ConnectionLost(message, Outcome.REFUSED) from error
        return connection

    def new_connection(
        self, accepted: socket.socket | None = None, tls: ssl.SSLContext | None = None
    ) -> RealConnection:
        parts = self._scratch, self._disk, self._tasks, self._log, self._open
        if accepted is not None and tls is not None:
            return TlsConnection(accepted, tls, *parts)
        return RealConnection(*parts, accepted)

    async def serve(
        self, accepted: socket.socket, on_connect: OnConnect, tls: ssl.SSLContext | None
    ) -> None:
        """The task of one accepted connection."""
        loop = asyncio.get_running_loop()
        connection = self.new_connection(accepted, tls)
        if tls is None:
            try:
                await loop.connect_accepted_socket(lambda: connection, accepted)
            except OSError as error:
                remote = address_of(accepted)
                accepted.close()
                self._log.info("connection_ended", remote=remote, cause=str(error))
                return
        try:
            await on_connect(connection)
        except Trouble as trouble:
            self._log.info("connection_ended", remote=connection.remote, cause=str(trouble))
        finally:
            connection.close()

    def spawn(self, work: Any, name: str) -> None:
        self.connections += 1
        task = self._tasks.spawn(work, name=name)
        task.add_done_callback(self._ended)

    def _ended(self, _: asyncio.Task[None]) -> None:
        self.connections -= 1

    def accepted(self) -> Accepted:
        return Accepted(self.connections, self.connections_max, self.descriptors_max, self.pauses)

    def warn(self, event: str, **fields: object) -> None:
        self._log.warn(event, **fields)


class RealListener:
    """Accepts by itself instead of through `create_server`, which gives up when descriptors run out."""

    def __init__(
        self,
        net: RealNet,
        sockets: list[socket.socket],
        on_accept: OnAccept,
        *,
        essential: bool,
    ) -> None:
        self._net = net
        self._essential = essential
        self._sockets = sockets
        self._on_accept = on_accept
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._warned = False
        name = sockets[0].getsockname()
        self.address: tuple[str, int] = (str(name[0]), int(name[1]))
        self._go_on()

    def _go_on(self) -> None:
        self._pause = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if self._net.connections >= self._net.connections_max and not self._essential:
                self._wait(_no_more(self._net.accepted()))
                return
            try:
                accepted, remote = listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in GONE_ALREADY:
                    continue
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                self._wait(str(error))
                return
            _set_up(accepted)
            self._net.spawn(self._on_accept(accepted), name=f"connection {remote[0]}:{remote[1]}")
        self._warned = False

    def _wait(self, reason: str) -> None:
        """The kernel keeps who is waiting; they are taken when others have gone."""
        self._net.pauses += 1
        if not self._warned:
            self._warned = True
            self._net.warn(
                "accepting_paused", port=self.address[1], open=self._net.connections, cause=reason
            )
        self._stop()
        self._pause = self._loop.call_later(ACCEPT_PAUSE_S, self._go_on)

    def _stop(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    async def close(self) -> None:
        self._stop()
        for listening in self._sockets:
            listening.close()
        self._sockets = []
        self._net.forget(self)


def _no_more(accepted: Accepted) -> str:
    return (
        f"at most {accepted.open_max} of the {accepted.descriptors_max} descriptors that this process may have"
        " (RLIMIT_NOFILE) are for connections, as the logs need the others"
    )


def _was_refused(error: Exception) -> bool:
    """Of a name with several addresses asyncio and uvloop tell all errors in one text: all must be refusals."""
    if isinstance(error, ConnectionRefusedError):
        return True
    told = str(error)
    refusals = told.count(f"[Errno {errno.ECONNREFUSED}]")
    return refusals > 0 and refusals == told.count("[Errno ")


def _bound(family: int, address: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # IPv4 has a socket of its own.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _set_up(accepted: socket.socket) -> None:
    accepted.setblocking(False)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client whose machine vanished says nothing for ever; the kernel finds out.
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
