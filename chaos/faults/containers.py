"""Fencepost's nodes as containers of the engine that DOCKER_HOST names, each on two networks: peers', and clients'.

INVARIANT  all that was made carries a label that no other lab has (`container_labels.py`); a guard that waits for this
           process's end removes it, however that end comes, and the next run removes what is left of dead ones.
PREVENTS   a machine that fills up with containers of runs that were killed.
PROVED BY  tests/chaos/test_faults_containers.py::test_a_harness_that_is_killed_leaves_no_container_behind

Cuts are rules in the network namespace of who is not to hear, so the engine must be of this machine, and this process
root; without that, `can` has neither cuts nor one-way cuts. Everything else needs the `docker` command alone.
"""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from fencepost.node.cli.children import free_port, held
from fencepost.node.cli.dev_folder import Layout, node_settings

from ..harness.asking import Address
from ..harness.processes import DidNotStart
from .builds import Builds
from .container_image import build, build_older, docker, freeze, image_id
from .container_labels import dead, new_lab
from .container_rules import addresses_of, apply, drops
from .older import OLDER as OLDER_COMMIT
from .proxy import HOST, Way
from .system import UPGRADE, CannotDo
from .world import World

IMAGE_VARIABLE: Final = (
    "FENCEPOST_TEST_IMAGE"  # an image by name; else one is built of the checkout
)
IMAGE: Final = "image"
LABEL: Final = "fencepost.chaos"  # its value is the lab
# All that may be left, also of a run that was killed before its first container, or in the middle of its removal.
LISTINGS: Final = (("ps", "-a"), ("network", "ls"), ("volume", "ls"))
DATA: Final = "/var/lib/fencepost"
CLIENT_PORT, PEER_PORT, OUTSIDE_PORT = 9092, 9192, 19092
STOP_S: Final = 60
# Ends when its stdin does, which is a pipe that this process holds.
GUARD: Final = 'cat >/dev/null; ids=$(docker ps -aq --filter label="$1"); \
[ -z "$ids" ] || docker rm -fv $ids >/dev/null; \
ids=$(docker network ls -q --filter label="$1"); [ -z "$ids" ] || docker network rm $ids >/dev/null; \
ids=$(docker volume ls -q --filter label="$1"); [ -z "$ids" ] || docker volume rm -f $ids >/dev/null'


class Containers:
    """See `System`. `settings` are NAME=VALUE, for all nodes."""

    name = "containers"
    wants: Mapping[str, str] = dict.fromkeys(
        ("cut", "one-way"), "root, nsenter and iptables, on the engine's own machine"
    )
    back_s = 120.0

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        settings: Sequence[str] = (),
        image: str = "",
        older: str = OLDER_COMMIT,
        begins_older: bool = False,
    ) -> None:
        self.data = folder.resolve()
        self.nodes = tuple(range(1, nodes + 1))
        self.can = frozenset({"kill", "pause", "members", "drain"})
        if os.geteuid() == 0 and shutil.which("nsenter") and shutil.which("iptables"):
            self.can |= {"cut", "one-way"}
        self._builds = Builds(older, self.nodes, begins_older=begins_older)
        if self._builds.why_none:
            self.wants = {**self.wants, UPGRADE: self._builds.why_none}
        else:
            self.can |= {UPGRADE}
        self._given = image or os.environ.get(IMAGE_VARIABLE, "")
        self._image = ""  # that nodes are made of
        self._older_image = ""
        self._settings = list(settings)
        lab = new_lab()
        self.lab = f"fencepost-chaos-{lab}"
        self.label = f"{LABEL}={lab}"
        taken: list[int] = []
        for _ in range(2 * nodes):
            taken.append(free_port(taken))
        self._ports = dict(zip(self.nodes, taken, strict=False))
        self._admins = dict(zip(self.nodes, taken[nodes:], strict=True))
        self._secret = secrets.token_urlsafe(32)
        self._ways: tuple[Way, ...] = ()
        self._paused: set[int] = set()
        self._started: dict[int, float] = {}
        self._made_of: dict[int, str] = {}  # the image of each container
        self._said_before = dict.fromkeys(self.nodes, "")  # by containers that are no more
        self._stack = contextlib.ExitStack()

    @property
    def foreign(self) -> Mapping[str, str]:
        """An image that was given is nobody knows what: its id is asked for once, and run, whoever takes its name meanwhile."""
        if self._given and not self._image:
            self._image = image_id(self._given)
        return {IMAGE: self._image} if self._given else {}

    # -- all of it -------------------------------------------------------------------------------

    def begin(self) -> float:
        began = time.monotonic()
        self.data.mkdir(parents=True, exist_ok=True)
        remove_what_dead_runs_left()
        self._image = self.foreign.get(IMAGE) or build()
        if self._builds.of:
            base = self._given or self._image  # not every engine builds on an id
            self._older_image = build_older(self._builds.older, base, self.data / "older")
        self._stack.enter_context(held([*self._ports.values(), *self._admins.values()]))
        self._stack.callback(self._end_guard, self.start_guard())
        for network in self._networks:
            docker("network", "create", "--label", self.label, network)
        for node in self.nodes:
            self._create(node)
            self.start(node)
        self.wait_ready(self.nodes, self.back_s)
        return time.monotonic() - began

    def start_guard(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", self.label],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _end_guard(self, guard: "subprocess.Popen[bytes]") -> None:
        """It removes all, and this waits for it."""
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(120)

    def stop(self) -> dict[int, int]:
        self.heal()
        leaving = [node for node in self.nodes if self.runs(node)]
        names = [self._name(node) for node in leaving]
        if names:
            docker("stop", "--time", str(STOP_S), *names, timeout_s=STOP_S + 60)
        self._write_logs()
        return {node: int(self._state(node)["ExitCode"]) for node in leaving}

    def close(self) -> None:
        if self._started:
            self._write_logs()
        self._stack.close()
        self._started.clear()
        self._paused.clear()

    def _write_logs(self) -> None:
        """What a run is understood by outlives its containers."""
        for node in self._started:
            said = self._said_before[node] + self._all_said(node)
            (self.data / f"node-{node}.log").write_text(said)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)  # whatever ends the start, nothing stays
            self.begin()
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one node --------------------------------------------------------------------------------

    @property
    def _networks(self) -> tuple[str, str]:
        return f"{self.lab}-clients", f"{self.lab}-peers"

    def _name(self, node: int) -> str:
        return f"{self.lab}-node-{node}"

    def _host(self, node: int) -> str:
        return f"fencepost-{node}"

    def _peer(self, node: int) -> str:
        """Known on the peers' network alone. A host's name is known on both, and the engine answers with either address:
        nodes that talked over the clients' network heard each other through every cut."""
        return f"peer-{node}"

    def _create(self, node: int) -> None:
        clients, peers = self._networks
        volume = f"{self.lab}-{node}"
        docker("volume", "create", "--label", self.label, volume)
        words = ["create", "--name", self._name(node), "--hostname", self._host(node)]
        words += ["--label", self.label, "--network", clients, "--memory", "1g"]
        words += ["--volume", f"{volume}:{DATA}", "--read-only", "--tmpfs", "/tmp:size=64m"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"]
        words += ["--publish", f"{HOST}:{self._ports[node]}:{OUTSIDE_PORT}"]
        words += ["--publish", f"{HOST}:{self._admins[node]}:9644"]
        for name, value in self._environment(node).items():
            words += ["--env", f"{name}={value}"]
        self._made_of[node] = self._image_of(node)
        docker(*words, self._made_of[node])
        docker("network", "connect", "--alias", self._peer(node), peers, self._name(node))

    def _image_of(self, node: int) -> str:
        return self._older_image if self._builds.is_older(node) else self._image

    def _environment(self, node: int) -> dict[str, str]:
        several = (0,) * len(self.nodes)
        layout = Layout(client_ports=several, peer_ports=several, admin_ports=several)
        settings = node_settings(layout)
        settings |= dict(each.split("=", 1) for each in self._settings)
        voters = range(1, layout.voters + 1)
        settings |= {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://0.0.0.0:{OUTSIDE_PORT}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._ports[node]}",
        }
        if len(self.nodes) > 1:
            settings |= {
                "peer.listener": f"0.0.0.0:{PEER_PORT}",
                "peer.advertised.listener": f"{self._peer(node)}:{PEER_PORT}",
                "controller.quorum.voters": ",".join(
                    f"{voter}@{self._peer(voter)}:{PEER_PORT}" for voter in voters
                ),
                "peer.secret": self._secret,
            }
        return {f"FENCEPOST_{name.upper().replace('.', '_')}": v for name, v in settings.items()}

    def _state(self, node: int) -> dict[str, Any]:
        return self._inspect(node)["State"]  # type: ignore[no-any-return]

    def _inspect(self, node: int) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(docker("inspect", self._name(node)))
        return found[0]

    def pid(self, node: int) -> int:
        if not self.runs(node):
            raise ProcessLookupError(f"the container of node {node} does not run")
        return int(self._state(node)["Pid"])

    def runs(self, node: int) -> bool:
        return node in self._started and bool(self._state(node)["Running"])

    def exit_code(self, node: int) -> int | None:
        if node not in self._started:
            return None
        state = self._state(node)
        return None if state["Running"] else int(state["ExitCode"])

    def is_up(self, node: int) -> bool:
        return node not in self._paused and self.runs(node) and self._serves(node)

    def _serves(self, node: int) -> bool:
        """The engine's own proxy accepts for a node that does not: the admin door has to say so."""
        return _ready(self._admins[node])

    @property
    def paused(self) -> frozenset[int]:
        return frozenset(self._paused)

    def kill(self, node: int, signal_number: int = signal.SIGKILL) -> None:
        self.resume(node)  # the engine kills nobody that is frozen, on some kernels
        if not self.runs(node):
            return
        if signal_number == signal.SIGKILL:
            docker("kill", self._name(node))
        else:
            docker("stop", "--time", str(STOP_S), self._name(node), timeout_s=STOP_S + 30)
        docker("wait", self._name(node))

    def start(self, node: int) -> None:
        if self.runs(node):
            return
        if self._image_of(node) != self._made_of[node]:  # its data is in a volume, which stays
            self._said_before[node] += self._all_said(node)
            docker("rm", self._name(node))
            self._create(node)
        docker("start", self._name(node))
        self._started[node] = time.monotonic()
        if self._ways:
            self.cut(self._ways)  # its namespace is a new one, perhaps with other addresses

    def wait_ready(self, nodes: Sequence[int], timeout_s: float) -> float:
        began = time.monotonic()
        for node in nodes:
            while not _ready(self._admins[node]):
                if not self.runs(node):
                    raise DidNotStart(f"node {node} ended:\n{self.said(node)}")
                if time.monotonic() - began > timeout_s:
                    raise TimeoutError(f"node {node} does not serve after {timeout_s:g} s")
                time.sleep(0.1)
        return time.monotonic() - began

    def pause(self, node: int) -> None:
        if not self.runs(node):
            raise ProcessLookupError(f"the container of node {node} does not run")
        freeze(self._name(node))
        self._paused.add(node)

    def resume(self, node: int) -> None:
        if node in self._paused:
            self._paused.discard(node)
            docker("unpause", self._name(node))

    # -- where they are --------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    @property
    def doors(self) -> Mapping[int, Address]:
        return {node: (HOST, port) for node, port in self._ports.items()}

    @property
    def admins(self) -> Mapping[int, Address]:
        return {node: (HOST, port) for node, port in self._admins.items()}

    def folder(self, node: int) -> Path:
        raise CannotDo(f"the data of node {node} is in a volume, which is the engine's")

    def world(self, node: int) -> World:
        raise CannotDo(f"node {node} is a container: its clocks and disk are the engine's")

    @property
    def builds(self) -> Mapping[int, str]:
        return dict(self._builds.of)

    def take_build(self, node: int, build: str) -> None:
        self._builds.take(node, build)

    def said(self, node: int) -> str:
        return docker("logs", "--tail", "200", self._name(node), both=True)

    def _all_said(self, node: int) -> str:
        return docker("logs", self._name(node), both=True)

    # -- the network -----------------------------------------------------------------------------

    def cut(self, ways: Iterable[Way]) -> None:
        self._ways = tuple(sorted(ways))
        names = [self._name(node) for node in self.nodes]
        found = dict(zip(self.nodes, json.loads(docker("inspect", *names)), strict=True))
        addresses = {node: addresses_of(each) for node, each in found.items()}
        clients, _ = self._networks
        for node, each in found.items():
            if each["State"]["Running"]:
                heard = [a for a, b in self._ways if b == node]
                said = [b for a, b in self._ways if a == node]
                apply(each["State"]["Pid"], drops(heard, said, addresses, node, clients))

    def slow(self, ways: Mapping[Way, float]) -> None:
        if ways:
            raise CannotDo("containers have no slow networks")

    def heal(self) -> None:
        if self._ways:
            self.cut(())
        for node in sorted(self._paused):
            self.resume(node)


def _ready(admin_port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, admin_port, timeout=2)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def remove_what_dead_runs_left() -> None:
    """Of runs whose guard was killed as well."""
    shown = ("--filter", f"label={LABEL}", "--format", f'{{{{.Label "{LABEL}"}}}}')
    labs = [lab for words in LISTINGS for lab in docker(*words, *shown).split()]
    for lab in dead(labs):
        guard = ["/bin/sh", "-c", GUARD, "guard", f"{LABEL}={lab}"]
        subprocess.run(guard, stdin=subprocess.DEVNULL, check=False, capture_output=True)
