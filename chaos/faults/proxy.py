"""Doors before the doors of nodes: every byte between two nodes, or a client and a node, comes through here.

INVARIANT  while a way from one end to another is cut no byte of it arrives, nor the news that an end has closed; what
           was sent meanwhile arrives in order once it is healed.
PREVENTS   a cut that a node learns of at once, as it would never learn of a cable that was pulled.
PROVED BY  tests/chaos/test_faults_proxy.py::test_a_cut_holds_bytes_back_and_the_news_of_the_end_too

Nodes advertise these doors. Who dials is asked of the kernel: the process that holds the other end of the connection is
a node's, or else it is a client (`CLIENTS`). A door whose node does not listen is shut, so that who dials is refused as
it would be without us: nodes tell the death of a process from the silence of a machine by that. Told what to do by
JSON lines on stdin, each answered by a line when it is done; ends with its stdin.

    python -m fencepost.chaos.faults.proxy '[{"node": 1, "port": 7001, "behind": 9092}, …]'
"""

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .sockets import dialing_process, listening_ports

CLIENTS: Final = 0  # the number of everybody who is no node
HOST: Final = "127.0.0.1"
LOOK_S: Final = 0.05  # how often the door of a node that is down is looked at
BUFFER_MAX: Final = 1 << 18  # bytes on their way, before who sends has to wait
BACKLOG: Final = 1024
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: the other end is told that it was cut off

Way = tuple[int, int]  # from whom to whom


@dataclass(frozen=True, slots=True)
class Door:
    """`port` is dialed, `behind` is where the node listens."""

    node: int
    port: int
    behind: int


class End(asyncio.Protocol):
    """One of the two connections of a pipe; `way` is that of the bytes which come in by it."""

    def __init__(self, proxies: "Proxies", way: Way) -> None:
        self.proxies = proxies
        self.way = way
        self.other: End | None = None
        self.transport: Any = None
        self.ended = False
        self._held: list[bytes] = []
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(BUFFER_MAX)
        self.proxies.ends[self] = None
        self.look()

    def data_received(self, data: bytes) -> None:
        delay_s = self.proxies.delays.get(self.way, 0.0)
        self._held.append(data)
        if delay_s and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._is_due)
        self.look()

    def _is_due(self) -> None:
        self._timer = None
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.proxies.has_ended(self)
        self.look()

    def pause_writing(self) -> None:
        self._is_full = True
        self._let_other_look()

    def resume_writing(self) -> None:
        self._is_full = False
        self._let_other_look()

    def _let_other_look(self) -> None:
        if self.other is not None:
            self.other.look()

    def look(self) -> None:
        """Pass on what may be passed on now; then read on, or wait."""
        other = self.other
        passes = other is not None and self.way not in self.proxies.cut and self._timer is None
        if passes and self._held:
            held, self._held = self._held, []
            other.write(b"".join(held))  # type: ignore[union-attr]
        if self.ended:
            if passes:
                self.proxies.ends.pop(self, None)
                other.close()  # type: ignore[union-attr]
            return
        reads = passes and not other._is_full  # type: ignore[union-attr]
        if self.transport.is_closing() or reads == self.transport.is_reading():
            return
        if reads:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Once all that was passed on has been taken."""
        if not self.transport.is_closing():
            self.transport.close()

    def reset(self) -> None:
        """At once, and who is at the other end is told that it was cut off."""
        self.proxies.ends.pop(self, None)
        if not self.transport.is_closing():
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.transport.abort()


class DialedEnd(End):
    """The connection of who dialed a door. Who is cut off from the node stays undialed: the node sees nothing."""

    def __init__(self, proxies: "Proxies", door: Door) -> None:
        super().__init__(proxies, (CLIENTS, door.node))
        self.door = door
        self._dialing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        port = transport.get_extra_info("peername")[1]
        source = dialing_process(port, self.door.port, self.proxies.pids)
        self.way = (CLIENTS if source is None else source, self.door.node)
        super().connection_made(transport)
        if self.way not in self.proxies.cut:
            self._dialing = asyncio.get_running_loop().create_task(self._dial())

    @property
    def is_undialed(self) -> bool:
        return self._dialing is None

    async def _dial(self) -> None:
        behind = End(self.proxies, (self.way[1], self.way[0]))
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: behind, HOST, self.door.behind)
        except OSError:
            self.proxies.look_at_doors()  # before it dials again
            self.reset()
            return
        self.other, behind.other = behind, self
        behind.look()
        self.look()


class Proxies:
    """All doors of a cluster, in one event loop."""

    def __init__(self, doors: Sequence[Door]) -> None:
        self.doors = tuple(doors)
        self.pids: dict[int, int] = {}  # node -> its process
        self.cut: frozenset[Way] = frozenset()
        self.delays: Mapping[Way, float] = {}
        self.ends: dict[End, None] = {}
        self._open: dict[Door, socket.socket] = {}
        self._accepting: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.TimerHandle | None = None

    # -- what it is told -------------------------------------------------------------------------

    def tell(self, told: Mapping[str, Any]) -> None:
        """`cut`: all ways that are cut from now on. `slow`: all that are, as [from, to, seconds]. `pids`: all of them.

        Nothing at all: some node may have ended.
        """
        if "pids" in told:
            self.pids = {int(node): int(pid) for node, pid in told["pids"].items()}
        if "slow" in told:
            self.delays = {(a, b): seconds for a, b, seconds in told["slow"]}
        if "cut" in told:
            before, self.cut = self.cut, frozenset((a, b) for a, b in told["cut"])
            self._reset_undialed(before - self.cut)
        for end in list(self.ends):
            end.look()
        self.look_at_doors()

    def _reset_undialed(self, healed: frozenset[Way]) -> None:
        """Whose first packets were lost dials once more."""
        for end in list(self.ends):
            if isinstance(end, DialedEnd) and end.is_undialed and end.way in healed:
                end.reset()

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for door in list(self._open):
            self._shut(door)
        for end in list(self.ends):
            end.reset()

    # -- doors -----------------------------------------------------------------------------------

    def has_ended(self, end: End) -> None:
        """Before who dialed hears that its connection is gone: it dials again at once."""
        if not isinstance(end, DialedEnd) and end.other is not None and not end.other.ended:
            self.look_at_doors()

    def look_at_doors(self) -> None:
        """Open those whose nodes listen, shut those whose nodes do not; later again while some are shut."""
        listening = listening_ports()
        for door in self.doors:
            # Who is cut off from a node must not learn that it died, so its door stays open.
            wanted = door.behind in listening or any(to == door.node for _, to in self.cut)
            if wanted and door not in self._open:
                self._unlock(door)
            elif not wanted and door in self._open:
                self._shut(door)
        if self._looking is None and not listening.issuperset(door.behind for door in self.doors):
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._looking = None
        self.look_at_doors()

    def _unlock(self, door: Door) -> None:
        listener = socket.create_server((HOST, door.port), backlog=BACKLOG)
        listener.setblocking(False)
        self._open[door] = listener
        asyncio.get_running_loop().add_reader(listener, self._accept, door, listener)

    def _shut(self, door: Door) -> None:
        listener = self._open.pop(door)
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()

    def _accept(self, door: Door, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        task = loop.create_task(
            loop.connect_accepted_socket(lambda: DialedEnd(self, door), accepted)
        )
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)


async def serve(doors: Sequence[Door]) -> None:
    """Until stdin ends: with who started it, however that one ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    proxies = Proxies(doors)
    proxies.look_at_doors()
    while line := await reader.readline():
        proxies.tell(json.loads(line))
        sys.stdout.write("done\n")
        sys.stdout.flush()
    proxies.close()


if __name__ == "__main__":
    asyncio.run(serve([Door(**each) for each in json.loads(sys.argv[1])]))
