"""The simulated network's port for a node: listening and connecting."""

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.cluster.base.errors import ConnectionLost, ConnectionRefused, Outcome, Trouble
from fencepost.cluster.base.ports import Connection, Log, OnHttp, OnHttpHead, Tasks

from .connection import SimConnection
from .http import serve_http
from .loop import Incarnation
from .network import Network

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
WILDCARD: Final = ("", "0.0.0.0", "::")  # noqa: S104 - names in a simulation, nothing listens
SYN_RETRY_S: Final = (1.0, 2.0, 4.0, 8.0)
OnConnect = Callable[[Connection], Awaitable[None]]


class SimListener:
    """See `ports.Listener`."""

    def __init__(
        self, net: "SimNet", host: str, port: int, on_connect: OnConnect, *, loopback: bool
    ) -> None:
        self._net = net
        self.address = (host, port)
        self.loopback = loopback
        self._on_connect = on_connect

    @property
    def alive(self) -> bool:
        return self._net.incarnation.alive

    def accept(self) -> SimConnection:
        return self._net.new_connection(self.address[1])

    def serve(self, connection: SimConnection) -> None:
        name = f"connection {connection.remote[0]}:{connection.remote[1]}"
        self._net.tasks.spawn(self._serve(connection), name=name)

    async def _serve(self, connection: SimConnection) -> None:
        try:
            await self._on_connect(connection)
        except Trouble as trouble:
            self._net.log.info("connection_ended", remote=connection.remote, reason=str(trouble))
        finally:
            connection.close()

    async def close(self) -> None:
        self._net.forget(self)


class SimNet:
    """See `ports.Net`. A machine's name is its host name."""

    def __init__(self, network: Network, incarnation: Incarnation, tasks: Tasks, log: Log) -> None:
        self._network = network
        self.incarnation = incarnation
        self.tasks = tasks
        self.log = log

    def new_connection(self, local_port: int) -> SimConnection:
        return SimConnection(self._network, self.incarnation, local_port, self.log)

    def forget(self, listener: SimListener) -> None:
        key = (self.incarnation.name, listener.address[1])
        if self._network.listeners.get(key) is listener:
            del self._network.listeners[key]

    async def listen(
        self,
        host: str,
        port: int,
        on_connect: OnConnect,
        *,
        tls: ssl.SSLContext | None = None,
        essential: bool = False,
    ) -> SimListener:
        self.incarnation.check()
        name = self.incarnation.name
        if host not in (name, *LOOPBACK, *WILDCARD):
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {name}")
        port = port or self._network.free_port(name)
        old = self._network.listeners.get((name, port))
        if old is not None and old.alive:
            raise OSError(errno.EADDRINUSE, f"port {port} is in use")
        shown = name if host in WILDCARD else host
        listener = SimListener(self, shown, port, on_connect, loopback=host in LOOPBACK)
        self._network.listeners[name, port] = listener
        return listener

    async def listen_http(
        self,
        host: str,
        port: int,
        serve: OnHttp,
        *,
        body_bytes_max: int,
        judge: OnHttpHead | None = None,
    ) -> SimListener:
        async def on_connect(connection: Connection) -> None:
            await serve_http(connection, serve, judge, body_bytes_max=body_bytes_max)

        return await self.listen(host, port, on_connect)

    async def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = 10.0
    ) -> SimConnection:
        self.incarnation.check()
        machine = self.incarnation.name if host in LOOPBACK else host
        if machine not in self._network.machines:
            raise ConnectionLost(f"can't connect to {host}:{port}: no such host", Outcome.REFUSED)
        dial = _Dial(self._network, self, machine, port)
        try:
            async with asyncio.timeout(timeout_s):
                return await dial.answer
        except TimeoutError as error:
            reason = f"no answer in {timeout_s} s"
            raise ConnectionLost(
                f"can't connect to {host}:{port}: {reason}", Outcome.REFUSED
            ) from error

    def accepted(self) -> None:
        return None


class _Dial:
    """One attempt to connect: asks again and again until there is an answer or nobody waits for it."""

    def __init__(self, network: Network, net: SimNet, target: str, port: int) -> None:
        self._network = network
        self._net = net
        self._source = net.incarnation.name
        self._target = target
        self._port = port
        self._tries = 0
        self.answer: asyncio.Future[SimConnection] = network.loop.create_future()
        self._ask()

    def _ask(self) -> None:
        delay = self._network.delay(self._source, self._target, 0)
        self._network.later(delay, self._asked)

    def _asked(self) -> None:
        network = self._network
        if self.answer.done() or not self._net.incarnation.alive:
            return
        there = network.reaches(self._source, self._target)
        if not (there and network.reaches(self._target, self._source)):
            wait = SYN_RETRY_S[min(self._tries, len(SYN_RETRY_S) - 1)]
            self._tries += 1
            network.later(wait, self._ask)
            return
        listener = network.listeners.get((self._target, self._port))
        back = network.delay(self._target, self._source, 0)
        if (
            listener is None
            or not listener.alive
            or (listener.loopback and self._source != self._target)
        ):
            network.later(back, self._refused)
            return
        client = self._net.new_connection(network.free_port(self._source))
        server = listener.accept()
        client.join(server)
        network.trace.event(
            self._source, "net.connect", to=self._target, port=self._port, conn=client.number
        )
        listener.serve(server)
        network.later(back, lambda: self._connected(client))

    def _refused(self) -> None:
        if not self.answer.done():
            where = f"{self._target}:{self._port}"
            self.answer.set_exception(
                ConnectionRefused(f"can't connect to {where}: connection refused")
            )

    def _connected(self, client: SimConnection) -> None:
        if self.answer.done():
            client.abort()  # nobody waits for it any more
        else:
            self.answer.set_result(client)
