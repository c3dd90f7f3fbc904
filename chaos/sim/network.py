"""What lies between the machines: latency, bandwidth, cuts, resets; and the pipes that bytes travel in.

INVARIANT  bytes of one direction of a connection arrive in order, none twice, none left out, up to where
           the connection breaks; that is TCP's promise, and all of it.
PREVENTS   a simulation in which code passes that relies on a send having arrived whole, or at all.
PROVED BY  tests/sim/test_sim_net.py::test_bytes_arrive_in_order_in_pieces_of_any_size
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.framing import SCRATCH_SIZE

from .file_node import Lent
from .loop import SimLoop
from .trace import Trace

if TYPE_CHECKING:
    from .connection import SimConnection
    from .net import SimListener

DATA: Final = "data"
FIN: Final = "fin"
RST: Final = "rst"
SEGMENT_MAX: Final = 128 * 1024
LOOPBACK_S: Final = (0.000_01, 0.000_05)
# TCP sends again what was not confirmed after this long at first, then at growing intervals.
RETRANSMIT_S: Final = (0.2, 1.0)
EPHEMERAL_PORT_FIRST: Final = 40_000
Range = tuple[float, float]
Sharing = Sequence[
    tuple[Lent, int]
]  # where in a piece of what is sent it stands, which may be before its beginning


@dataclass(slots=True)
class Link:
    """How one machine's bytes get to another one."""

    latency_s: Range = (0.000_1, 0.001)
    spike_odds: float = 0.002
    spike_s: Range = (0.01, 0.2)
    split_odds: float = 0.2  # that a write arrives in several pieces
    reset_odds: float = 0.0  # that a write breaks its connection
    bytes_per_s: float | None = None

    def delay(self, rng: random.Random) -> float:
        spike = self.spike_odds and rng.random() < self.spike_odds
        return rng.uniform(*(self.spike_s if spike else self.latency_s))


class Network:
    """All machines' network. Its timers belong to no node: they outlive them."""

    def __init__(self, loop: SimLoop, rng: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.link_default = Link()
        self.stall_timeout_s = 20.0  # how long unconfirmed bytes keep a connection
        self.machines: dict[str, bool] = {}  # name -> is it on
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.connections: dict[int, SimConnection] = {}
        self.scratch = bytearray(SCRATCH_SIZE)  # what all framers share, as in reality
        self._links: dict[tuple[str, str], Link] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._stalled: dict[Pipe, None] = {}
        self._busy_until: dict[tuple[str, str], float] = {}
        self._ports: dict[str, int] = {}
        self._context = Context()
        self._numbers = 0

    # Faults.

    def link(self, source: str, target: str) -> Link:
        """The link in this direction, to be changed; a copy of the default until then."""
        found = self._links.get((source, target))
        if found is None:
            default = self.link_default
            found = Link(*(getattr(default, name) for name in Link.__slots__))
            self._links[source, target] = found
        return found

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Nothing gets through any more; what is under way waits, as TCP would send it again."""
        self.trace.event(source, "net.cut", target=target, one_way=one_way)
        self._cuts[source, target] = None
        if not one_way:
            self._cuts[target, source] = None

    def heal(self, source: str, target: str) -> None:
        self.trace.event(source, "net.heal", target=target)
        self._cuts.pop((source, target), None)
        self._cuts.pop((target, source), None)
        self.kick()

    def isolate(self, name: str) -> None:
        """Cut a machine off from all others that there are."""
        for other in self.machines:
            if other != name:
                self.cut(name, other)

    def heal_all(self) -> None:
        """No cuts, and every link as the default one."""
        self.trace.event("-", "net.heal_all")
        self._cuts.clear()
        self._links.clear()
        self.kick()

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two machines; what is under way is lost."""
        for connection in list(self.connections.values()):
            if (connection.machine, connection.peer_machine) == (one, other):
                connection.break_off()

    # What pipes and connections ask.

    def reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self._cuts and self.machines.get(target, False)

    def delay(self, source: str, target: str, size: int) -> float:
        if source == target:
            return self.rng.uniform(*LOOPBACK_S)
        link = self._links.get((source, target), self.link_default)
        delay = link.delay(self.rng)
        if link.bytes_per_s is not None:
            now = self.loop.time()
            start = max(now, self._busy_until.get((source, target), 0.0))
            end = start + size / link.bytes_per_s
            self._busy_until[source, target] = end
            delay += end - now
        return delay

    def odds(self, source: str, target: str) -> Link:
        return self._links.get((source, target), self.link_default)

    def at(self, when: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_at(when, call, context=self._context)

    def later(self, delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self.at(self.loop.time() + delay, call)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def free_port(self, machine: str) -> int:
        port = self._ports.get(machine, EPHEMERAL_PORT_FIRST)
        while (machine, port) in self.listeners:
            port += 1
        self._ports[machine] = port + 1 if port < 65_000 else EPHEMERAL_PORT_FIRST
        return port

    def stall(self, pipe: "Pipe") -> None:
        self._stalled[pipe] = None

    def unstall(self, pipe: "Pipe") -> None:
        self._stalled.pop(pipe, None)

    def kick(self) -> None:
        """Something was healed: what waited is sent again, a little later."""
        for pipe in list(self._stalled):
            pipe.retry(self.rng.uniform(*RETRANSMIT_S))

    def turn_on(self, machine: str) -> None:
        self.machines[machine] = True
        self.kick()

    def turn_off(self, machine: str) -> None:
        self.machines[machine] = False


class Pipe:
    """One direction of one connection: what was sent and has not been received yet."""

    def __init__(self, network: Network, source: "SimConnection", target: "SimConnection") -> None:
        self._network = network
        self._source = source
        self._target = target
        self._queue: deque[tuple[float, str, bytes, Sharing]] = deque()
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._blocked = False
        self.size = 0

    def push(
        self, kind: str, data: bytes = b"", *, delay: float = 0.0, sharing: Sharing = ()
    ) -> None:
        """`sharing` says where in `data` pages of files are."""
        network = self._network
        source, target = self._source.machine, self._target.machine
        if kind == RST and self._blocked:
            self.clear()  # a reset does not wait until its receiver has read
            self._blocked = False
        due = network.loop.time() + delay + network.delay(source, target, len(data))
        self._last = max(self._last, due)
        self._queue.append((self._last, kind, data, sharing))
        self.size += len(data)
        if self._timer is None:
            self._arm(0.0)

    def clear(self, keep: int = 0) -> None:
        """Drop what is under way, but for the first `keep` bytes and a reset, which is no data to lose."""
        kept: deque[tuple[float, str, bytes, Sharing]] = deque()
        for due, kind, data, sharing in self._queue:
            if kind == RST or (kind == DATA and keep > 0):
                kept.append((due, kind, data[:keep], sharing))
                keep -= len(data)
        self._queue = kept
        self.size = sum(len(data) for _, _, data, _ in kept)

    def retry(self, delay: float) -> None:
        self._network.unstall(self)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._blocked = False
        self._arm(self._network.loop.time() + delay)

    def unblock(self) -> None:
        """The receiver has room again."""
        if self._blocked:
            self.retry(0.0)

    def _arrive(self) -> None:
        self._timer = None
        network, queue = self._network, self._queue
        source, target = self._source, self._target
        now = network.loop.time()
        while queue and queue[0][0] <= now:
            _, kind, data, sharing = queue[0]
            if not network.reaches(source.machine, target.machine):
                self._stall()
                return
            if kind == DATA and not target.has_room():
                self._blocked = True
                return
            queue.popleft()
            self.size -= len(data)
            if sharing:
                data = _as_it_is(data, sharing)
            target.arrived(kind, data)
            source.sent()
        self._arm(now)

    def _arm(self, not_before: float) -> None:
        waits = self._blocked or self._stall_timer is not None
        if self._queue and self._timer is None and not waits:
            when = max(not_before, self._queue[0][0])
            self._timer = self._network.at(when, self._arrive)

    def _stall(self) -> None:
        self._network.stall(self)
        if self._stall_timer is None:
            timeout = self._network.stall_timeout_s
            self._stall_timer = self._network.later(timeout, self._give_up)

    def _give_up(self) -> None:
        """Nobody confirmed for too long: the sender's kernel ends the connection.

        The other end learns of it when it next reaches this one.
        """
        self._source.lost("no answer for too long")
        self.clear()
        self._stall_timer = None
        self._network.unstall(self)


def _as_it_is(data: bytes, sharing: Sharing) -> bytes:
    """By now: pages of files that were sent are what has been made of them since."""
    changed = [each for each in sharing if each[0].has_changed()]
    if not changed:
        return data
    now = bytearray(data)
    for lent, at in changed:
        lent.edit(now, at)
    return bytes(now)
