"""Brokers that are processes of this machine, each behind doors of ours, so that they can be cut off from one another.

INVARIANT  nodes, and the proxy before them, end with this process, however that one ends; a start again finds the same
           ports, which no other cluster is given meanwhile.
PREVENTS   clients that write into the cluster of another run; a paused node that wakes up in the middle of one.
PROVED BY  tests/chaos/test_faults_processes.py::test_nothing_outlives_a_harness_that_was_killed
"""

import contextlib
import os
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from fencepost.node.cli.children import free_port, held

from ..harness.asking import Address
from ..harness.processes import Process, answers
from .lasting import ProxyProcess, lasting
from .proxy import HOST, Door, Way
from .system import CannotDo
from .world import World, compiler, library

STOP_S: Final = 60.0
POLL_S: Final = 0.01
SAID_MAX: Final = 64_000  # characters
LIES: Final = frozenset({"clock", "disk", "power"})


class Ports:
    """Free ones, each given once."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def one(self) -> int:
        self.taken.append(free_port(self.taken))
        return self.taken[-1]


class Loopback(ABC):
    """See `System`. Who makes one says what its nodes are: `_process`, `_ports`."""

    name: str
    can: frozenset[str]
    wants: Mapping[str, str] = dict.fromkeys(sorted(LIES), "a C compiler")
    back_s: float = 90.0
    foreign: Mapping[str, str] = MappingProxyType({})  # what no subclass says otherwise

    def __init__(self, folder: Path, *, nodes: int) -> None:
        self.data = folder.resolve()
        self.nodes = tuple(range(1, nodes + 1))
        if compiler() is not None:
            self.can |= LIES
        self.ports = Ports()
        self._proxied: dict[int, int] = {}  # node -> the port that clients are told
        self._behind: dict[int, int] = {}  # node -> the port it listens on for them
        self._doors: list[Door] = []
        self._cut: tuple[Way, ...] = ()
        self._paused: set[int] = set()
        self._stack = contextlib.ExitStack()
        for node in self.nodes:
            self._proxied[node], self._behind[node] = self.door(node)
        self.processes: dict[int, Process] = {}
        self.worlds: dict[int, World] = {}
        self.proxy: ProxyProcess | None = None

    def door(self, node: int) -> tuple[int, int]:
        """A port to be dialed, and one to listen on behind it."""
        port, behind = self.ports.one(), self.ports.one()
        self._doors.append(Door(node, port, behind))
        return port, behind

    @abstractmethod
    def _process(self, node: int) -> Process:
        """Its program, to be started and started again."""

    def _lie(self) -> None:
        """A world for each node, where there is a compiler."""
        if not self.can >= LIES:
            return
        compiled = library(self.data)
        for node in self.nodes:
            self.folder(node).mkdir(parents=True, exist_ok=True)
            folder = (self.data / f"world-{node}").resolve()
            self.worlds[node] = World(folder, self.folder(node).resolve(), compiled.resolve())
            self._stack.callback(self.worlds[node].close)

    def _lies_to(self, node: int) -> dict[str, str]:
        """What its process has to find in its environment."""
        return self.worlds[node].environment() if node in self.worlds else {}

    def world(self, node: int) -> World:
        return self.worlds[node]

    def _wait_served(self, node: int, timeout_s: float) -> None:
        self.processes[node].wait_line("ready ", timeout_s)

    # -- all of it -------------------------------------------------------------------------------

    def begin(self) -> float:
        self.data.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        self._stack.enter_context(held(self.ports.taken))
        self.proxy = ProxyProcess(self._doors, self.data / "proxy.log")
        self._stack.callback(self.proxy.close)
        self.proxy.start()
        self._lie()
        for node in self.nodes:
            self.processes[node] = self._process(node)
            self._stack.callback(self.processes[node].kill)
        for node in self.nodes:
            self.start(node)
        self.wait_ready(self.nodes, self.back_s)
        return time.monotonic() - began

    def stop(self) -> dict[int, int]:
        self.heal()
        leaving = [node for node in self.nodes if self.runs(node)]
        for node in leaving:
            os.kill(self.pid(node), signal.SIGTERM)
        return {node: self._wait_ended(node) for node in leaving}

    def _wait_ended(self, node: int) -> int:
        """Its exit code; SIGKILL after `STOP_S`. A second SIGTERM would end it in the middle of its clean stop."""
        process, deadline = self.processes[node], time.monotonic() + STOP_S
        while process.alive and time.monotonic() < deadline:
            time.sleep(POLL_S)
        process.kill()
        assert process.exit_code is not None
        return process.exit_code

    def close(self) -> None:
        self._stack.close()
        self.processes.clear()
        self.worlds.clear()
        self._paused.clear()
        self.proxy = None

    def remove(self) -> None:
        """Data and logs; after the end."""
        shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)  # whatever ends the start, nothing stays
            self.begin()
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- where they are --------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._proxied.values())

    @property
    def doors(self) -> Mapping[int, Address]:
        return {node: (HOST, port) for node, port in self._behind.items()}

    @property
    def admins(self) -> Mapping[int, Address]:
        return {}

    def folder(self, node: int) -> Path:
        return self.data / f"node-{node}"

    def log(self, node: int) -> Path:
        return self.data / f"node-{node}.log"

    @property
    def builds(self) -> Mapping[int, str]:
        return {}

    def take_build(self, node: int, build: str) -> None:
        raise CannotDo(f"node {node} can't run the {build} build: {self.name} have one")

    def said(self, node: int) -> str:
        log = self.log(node)
        return log.read_text(errors="replace")[-SAID_MAX:] if log.exists() else ""

    # -- one node --------------------------------------------------------------------------------

    def pid(self, node: int) -> int:
        if not self.runs(node):
            raise ProcessLookupError(f"node {node} does not run")
        return self.processes[node].pid

    def runs(self, node: int) -> bool:
        return node in self.processes and self.processes[node].alive

    def exit_code(self, node: int) -> int | None:
        return self.processes[node].exit_code if node in self.processes else None

    def is_up(self, node: int) -> bool:
        return self.runs(node) and node not in self._paused and answers(self._behind[node])

    @property
    def paused(self) -> frozenset[int]:
        return frozenset(self._paused)

    def kill(self, node: int, signal_number: int = signal.SIGKILL) -> None:
        """SIGTERM gives it `STOP_S`; a paused node is woken for it."""
        process = self.processes[node]
        if signal_number == signal.SIGKILL:
            process.kill()
        elif process.alive:
            self.resume(node)
            os.kill(process.pid, signal_number)
            self._wait_ended(node)
        self._paused.discard(node)
        self._tell_proxy()  # its doors are shut before anybody dials again

    def start(self, node: int) -> None:
        process = self.processes[node]
        if process.alive:
            return
        lasting(process.start)
        self._tell_proxy()

    def wait_ready(self, nodes: Sequence[int], timeout_s: float) -> float:
        began = time.monotonic()
        for node in nodes:
            self._wait_served(node, max(1.0, began + timeout_s - time.monotonic()))
        self._tell_proxy()
        return time.monotonic() - began

    def pause(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        if node in self._paused and self.runs(node):
            os.kill(self.pid(node), signal.SIGCONT)
        self._paused.discard(node)

    # -- the network -----------------------------------------------------------------------------

    def _tell_proxy(self) -> None:
        pids = {node: process.pid for node, process in self.processes.items() if process.alive}
        if self.proxy is not None:
            self.proxy.tell(pids=pids)

    def cut(self, ways: Iterable[Way]) -> None:
        assert self.proxy is not None, "not begun"
        self.proxy.tell(cut=sorted(ways))

    def slow(self, ways: Mapping[Way, float]) -> None:
        assert self.proxy is not None, "not begun"
        self.proxy.tell(slow=ways)

    def heal(self) -> None:
        if self.proxy is not None:
            self.proxy.tell(cut=(), slow={})
        for node in sorted(self._paused):
            self.resume(node)
