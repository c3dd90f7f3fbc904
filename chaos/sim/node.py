"""A machine, and the simulated `Env` of the node that runs on it."""

import asyncio
import random
import uuid
from collections.abc import Callable

from fencepost.cluster.base.tasks import TaskOwner

from .clock import SimClock, SteadyTime, WallTime
from .disk import MachineDisk, SimDisk
from .loop import Incarnation, NodeDown, SimLoop, context_of
from .net import SimNet
from .network import Network
from .trace import LogLine, SimLog, Trace


class Machine:
    """What outlives the node's process: its disk, its clock, its name."""

    def __init__(self, name: str, disk: MachineDisk, loop: SimLoop) -> None:
        self.name = name
        self.disk = disk
        self.wall = WallTime(loop)
        self.steady = SteadyTime(loop)
        self.boots = 1
        self.starts = 0
        self.env: SimEnv | None = None
        self.events: list[LogLine] = []
        self.on_down: list[asyncio.Future[None]] = []


class SimEnv:
    """See `ports.Env`. One for each start of a node."""

    def __init__(
        self,
        machine: Machine,
        incarnation: Incarnation,
        loop: SimLoop,
        network: Network,
        trace: Trace,
        rng: random.Random,
        died: Callable[[str, BaseException], None],
    ) -> None:
        self.name = machine.name
        self.machine = machine
        self.incarnation = incarnation
        self.rng = rng
        self.clock = SimClock(loop, machine.wall, machine.steady, incarnation)
        self.disk = SimDisk(machine.disk, incarnation)
        self.log = SimLog(trace, machine.name, machine.events)
        self.tasks = TaskOwner(self.die, lambda: context_of(incarnation))
        self.net = SimNet(network, incarnation, self.tasks, self.log)
        self.boot_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{machine.name}/{machine.boots}"))
        self._died = died

    def usage(self) -> None:
        return None

    def die(self, reason: BaseException) -> None:
        if self.incarnation.alive:
            self._died(self.name, reason)
        raise NodeDown(f"{self.name} died")
