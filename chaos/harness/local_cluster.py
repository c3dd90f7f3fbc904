"""A real cluster of processes on this machine, whose nodes may be killed, paused and started again.

    with LocalCluster(folder / "data") as cluster:
        cluster.kill(cluster.leader_of("orders", 0))
        …
        cluster.start_again(2)

It is `fencepost dev --nodes N` as a person would start it; nodes are reached by the process ids that it writes down.
INVARIANT  whatever was paused or killed here, the cluster ends with the block, and with the process that made it.
PREVENTS   a paused node that is left behind and wakes up in the middle of another run.
PROVED BY  tests/chaos/test_local_cluster.py::test_a_cluster_with_a_paused_node_ends_with_its_block
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from . import asking
from .asking import Address, PartitionView
from .processes import DidNotStart, Process, fencepost_command

POLL_S = 0.005
GONE_S = 10.0
SAID_MAX = 64_000  # characters: the last line may hold a traceback


class LocalCluster:
    """Nodes are numbered from 1. Their ports are free ones, found at the first start and kept."""

    def __init__(
        self,
        data: Path,
        *,
        nodes: int = 3,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:
        self.data = data
        self.nodes = tuple(range(1, nodes + 1))
        self.ready_timeout_s = ready_timeout_s
        self.bootstrap = ""
        flags = [part for setting in settings for part in ("--set", setting)]
        where = ["--port", "0", "--data", str(data)]
        self.supervisor = Process(
            [*fencepost_command(), "dev", "--nodes", str(nodes), *where, *flags],
            log=data.parent / f"{data.name}.log",
            environment=environment,
        )
        self._paused: set[int] = set()
        self._down: set[int] = set()  # ended by us, and not started since

    # -- all of it -------------------------------------------------------------------------------

    def start(self) -> float:
        """Seconds until all served."""
        self.supervisor.start()
        return self.wait_ready()

    def wait_ready(self) -> float:
        line = self.supervisor.wait_line("ready ", self.ready_timeout_s)
        took = time.monotonic() - self.supervisor.started_at
        self.bootstrap = line.removeprefix("ready ")
        if len(self.addresses) != len(self.nodes):
            raise DidNotStart(f"not all nodes serve:\n{self.supervisor.said()}")
        return took

    def stop(self, timeout_s: float = 60.0) -> int:
        """Cleanly; the exit code."""
        return self.supervisor.stop(timeout_s)

    def close(self) -> None:
        """At once. The nodes end with their supervisor."""
        pids = [self._pid(node) for node in self.nodes]
        self.supervisor.kill()
        for pid in pids:
            if pid is not None:
                _until_gone(pid)

    @property
    def addresses(self) -> list[Address]:
        return asking.addresses_of(self.bootstrap) if self.bootstrap else []

    def bootstrap_of(self, node: int) -> str:
        return self.bootstrap.split(",")[node - 1]

    def said(self) -> str:
        """What the supervisor said, and the end of each node's log."""
        logs = [self.data / f"node-{node}" / "log" for node in self.nodes]
        tails = [f"{log}:\n{log.read_text()[-1500:]}" for log in logs if log.exists()]
        return "\n".join([self.supervisor.said(), *tails])

    def said_by(self, node: int) -> str:
        """The end of its log."""
        log = self.data / f"node-{node}" / "log"
        return log.read_text(errors="replace")[-SAID_MAX:] if log.exists() else ""

    # -- one node --------------------------------------------------------------------------------

    def pid(self, node: int) -> int:
        pid = self._pid(node)
        assert pid is not None, f"node {node} does not run"
        return pid

    def _pid(self, node: int) -> int | None:
        try:
            text = (self.data / f"node-{node}" / "pid").read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.strip() else None

    def runs(self, node: int) -> bool:
        """Paused or not."""
        pid = self._pid(node)
        return pid is not None and _is_there(pid)

    @property
    def ended_by_themselves(self) -> list[int]:
        """Who does not run, and was not ended here."""
        return [node for node in self.nodes if node not in self._down and not self.runs(node)]

    @property
    def awake(self) -> list[int]:
        return [node for node in self.nodes if node not in self._paused and self.runs(node)]

    def kill(self, node: int) -> None:
        """SIGKILL, and wait until it is gone. It stays down."""
        pid = self.pid(node)
        self._down.add(node)
        os.kill(pid, signal.SIGKILL)
        self._paused.discard(node)
        _until_gone(pid)

    def stop_node(self, node: int) -> None:
        """SIGTERM: leaders move first. It stays down."""
        pid = self.pid(node)
        self._down.add(node)
        os.kill(pid, signal.SIGTERM)
        _until_gone(pid)

    def pause(self, node: int) -> None:
        """SIGSTOP: its connections stay, it says nothing, and it will not know that time went by."""
        os.kill(self.pid(node), signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGCONT)
        self._paused.discard(node)

    def start_again(self, node: int) -> float:
        """Seconds until a node that was killed served again, or runs if it is without a majority."""
        started = time.monotonic()
        self._down.discard(node)
        try:
            done = subprocess.run(
                [*fencepost_command(), "dev", "--data", str(self.data), "--start", str(node)],
                capture_output=True,
                text=True,
                timeout=self.ready_timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            late = f"node {node} does not serve within {self.ready_timeout_s:g} s"
            raise DidNotStart(f"{late}\n{self.said()}") from None
        if done.returncode != 0:
            raise DidNotStart(f"{done.stdout}{done.stderr}\n{self.said()}")
        return time.monotonic() - started

    # -- who leads -------------------------------------------------------------------------------

    def _asked(self) -> list[Address]:
        return [self.addresses[node - 1] for node in self.awake]

    def partitions(self, topic: str) -> list[PartitionView]:
        return asking.partitions(self._asked(), topic)

    def leader_of(self, topic: str, partition: int) -> int:
        """-1 while there is none."""
        for each in self.partitions(topic):
            if each.partition == partition:
                return each.leader
        return -1

    def in_sync(self, topic: str) -> bool:
        """Whether every partition of the topic has a leader and all its replicas in the ISR."""
        found = self.partitions(topic)
        return bool(found) and all(
            each.leader >= 0 and set(each.isr) == set(each.replicas) for each in found
        )

    def quorum_leader(self) -> int:
        return asking.quorum_leader(self._asked())

    def coordinator_of(self, transactional_id: str) -> int:
        """-1 while there is none."""
        return asking.coordinator_of(self._asked(), transactional_id)

    # -- a block of it ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)  # whatever ends the start, no node stays
            self.start()
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.close()

    def remove(self) -> None:
        """The data and the log; after the end."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.supervisor.log.unlink(missing_ok=True)


def wait_for(what: str, condition: Callable[[], bool], wait_s: float) -> float:
    """Seconds until it held; TimeoutError with `what` when it does not come. Nobody answering is not yet."""
    started = time.monotonic()
    while True:
        try:
            if condition():
                return time.monotonic() - started
        except asking.NobodyAnswers:
            pass
        if time.monotonic() - started > wait_s:
            raise TimeoutError(f"waited {wait_s:g} s in vain: {what}")
        time.sleep(0.05)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _until_gone(pid: int) -> None:
    deadline = time.monotonic() + GONE_S
    while _is_there(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} outlives SIGKILL")
        time.sleep(POLL_S)
