"""The client door: accepts connections, bounds their number, and closes those that fell silent."""

import asyncio
import errno
from collections.abc import Mapping
from typing import Final

from fencepost.cluster.base.exit_codes import EXIT_LATER, CannotRun
from fencepost.cluster.base.ports import Connection, Env
from fencepost.cluster.base.ports import Listener as Door

from .connection import ClientConnection
from .dispatch import Dispatcher
from .metrics import ListenerCounters
from .places import Places

# How often idle connections are looked for. Kafka closes them in the same coarse way.
IDLE_SWEEP_S = 5.0
IDLE_SWEEP_S_MIN = 0.1
# How long a stopping node waits for its connections to end.
CLOSE_S_MAX = 5.0

_IN_USE: Final = (
    "Stop what holds that address, or choose another (`fencepost dev --port PORT`, or listeners)."
)
_WHAT_TO_DO: Final[Mapping[int, str]] = {
    errno.EADDRNOTAVAIL: "No interface of this machine has that address, or not yet: correct listeners. What clients are told may be"
    " another one, advertised.listeners.",
    errno.EACCES: "Ports below 1024 are the system's: choose another in listeners, or let this user have it.",
}


class ClientListener:
    """One listener of Kafka's `listeners` setting."""

    def __init__(
        self,
        env: Env,
        name: str,
        dispatcher: Dispatcher,
        places: Places,
        *,
        idle_s_max: float,
    ) -> None:
        self.env = env
        self.name = name
        self.dispatcher = dispatcher
        self.places = places  # shared with the other listeners
        self.idle_s_max = idle_s_max
        self.connections: dict[ClientConnection, None] = {}  # in the order in which they came
        self.counters = ListenerCounters()
        self._door: Door | None = None
        self._is_open = asyncio.Event()
        self._gone = asyncio.Event()

    async def try_address(self, host: str, port: int) -> None:
        """Trouble where `open` would fail: before the logs are opened, which leaves a mark, and before anybody who
        knocks would have to wait for that."""
        if port:
            await (await self._listen(host, port)).close()

    async def open(self, host: str, port: int) -> tuple[str, int]:
        self._door = await self._listen(host, port)
        self.env.tasks.spawn(self._close_idle(), name=f"idle connections of {self.name}")
        return self._door.address

    async def _listen(self, host: str, port: int) -> Door:
        try:
            return await self.env.net.listen(host, port, self._serve)
        except OSError as refused:
            what_to_do = _WHAT_TO_DO.get(refused.errno or 0, _IN_USE)
            raise CannotRun(
                f"can't listen on {host}:{port} ({self.name}): {refused.strerror or refused}. {what_to_do}",
                EXIT_LATER,
            ) from refused

    async def stop_accepting(self) -> None:
        if self._door is not None:
            await self._door.close()

    @property
    def is_listening(self) -> bool:
        return self._door is not None

    def let_in(self) -> None:
        """The node is ready: those who came early are served from here on."""
        self._is_open.set()

    async def close_all(self) -> None:
        """Close every connection after what was written to it, and wait until its requests have ended."""
        for client in list(self.connections):
            client.connection.close()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                while self.connections:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            self.env.log.warn(
                "connections_left_open", listener=self.name, open=len(self.connections)
            )

    async def _serve(self, connection: Connection) -> None:
        host = connection.remote[0]
        if not self._has_room(host):
            connection.abort()
            return
        client = ClientConnection(self.env, connection, self.dispatcher, self.name)
        self.connections[client] = None
        self.places.take(host)
        self.counters.opened += 1
        try:
            await self._is_open.wait()
            await client.serve()
        finally:
            self.counters.malformed += client.said_garbage
            self.counters.failed += client.met_fault
            self.connections.pop(client, None)
            self.places.leave(host)
            self._gone.set()

    def _has_room(self, host: str) -> bool:
        full = self.places.full(host)
        if full is None:
            return True
        self.counters.refused += 1
        self.env.log.warn("connection_refused", remote=host, **full._asdict())
        return False

    async def _close_idle(self) -> None:
        """connections.max.idle.ms; a client that connects and says nothing falls under it as well.

        Below zero is never, as in Kafka.
        """
        while self.idle_s_max >= 0:
            await self.env.clock.sleep(max(IDLE_SWEEP_S_MIN, min(IDLE_SWEEP_S, self.idle_s_max)))
            oldest = self.env.clock.steady() - self.idle_s_max
            for client in [c for c in self.connections if c.last_active_s < oldest and c.idle]:
                self.counters.idle_closed += 1
                client.connection.close()
