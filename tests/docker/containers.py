"""Nodes as containers: those of compose.yaml, on a network and volumes of their own, and nothing left behind.

INVARIANT  whatever was made carries a label, and is removed at the end, also of a test that fails.
PREVENTS   a machine that fills up with the containers of tests.
PROVED BY  tests/docker/test_docker_image.py::test_what_a_killed_run_has_left_is_removed_by_the_next
"""

import contextlib
import io
import json
import os
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Self

import docker
import yaml
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from fencepost.chaos.harness.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"
LABEL = "fencepost.test"  # its value is the process of the run
BASE = "python:3.11-slim-bookworm"
DATA = "/var/lib/fencepost"
ADMIN = "9644/tcp"
POLL_S = 0.05
SECRET = {"FENCEPOST_PEER_SECRET": "of these tests", "FENCEPOST_ADMIN_TOKEN": ""}
_number = count(1)


def until(what: str, done: Callable[[], object], seconds: float) -> float:
    """How long it took. The failure says what did not come about."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() < began + seconds, f"after {seconds} s still not: {what}"
        time.sleep(POLL_S)
    return time.monotonic() - began


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of an admin door; (0, …) if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)
    except (OSError, ValueError) as silent:
        return 0, {"why": str(silent)}


class Node:
    """One container of a node, its published ports, and what it says of itself."""

    def __init__(self, lab: "Lab", container: Container, admin_port: int) -> None:
        self.lab = lab
        self.container = container
        self.admin_port = admin_port

    def start(self) -> None:
        self.container.start()

    @property
    def is_ready(self) -> bool:
        return get(self.admin_port, "/health/ready")[0] == 200

    def wait_ready(self, seconds: float = 30.0) -> float:
        def ready() -> bool:
            if self.is_ready:
                return True
            self.container.reload()
            assert self.container.status != "exited", f"it ended:\n{self.said}"
            return False

        try:
            return until("ready", ready, seconds)
        except AssertionError as failed:
            raise AssertionError(
                f"{failed}; {get(self.admin_port, '/health/ready')}\n{self.said}"
            ) from failed

    def wait_ended(self, seconds: float = 30.0) -> int:
        """The exit code."""
        code: int = self.container.wait(timeout=seconds)["StatusCode"]
        return code

    def stop(self) -> int:
        """SIGTERM, and the time that compose.yaml allows."""
        self.container.stop(timeout=60)
        return self.wait_ended()

    @property
    def said(self) -> str:
        text: str = self.container.logs().decode(errors="replace")
        return text[-6_000:]


class Lab:
    """A network, and all that is in it. `with Lab(engine, image) as lab:`"""

    def __init__(self, engine: docker.DockerClient, image: str) -> None:
        self.engine = engine
        self.image = image
        self.name = f"fencepost-test-{os.getpid()}-{next(_number)}"
        self.labels = {LABEL: str(os.getpid()), f"{LABEL}.lab": self.name}

    def __enter__(self) -> Self:
        self.network = self.engine.networks.create(self.name, driver="bridge", labels=self.labels)
        return self

    def __exit__(self, *_: object) -> None:
        remove(self.engine, f"{LABEL}.lab={self.name}")

    def volume(self, **driver_opts: str) -> str:
        name = f"{self.name}-{next(_number)}"
        self.engine.volumes.create(
            name, driver="local", driver_opts=driver_opts, labels=self.labels
        )
        return name

    def container(self, name: str, *, image: str | None = None, **options: Any) -> Container:
        """Made, not started; others in the network find it by `name`."""
        endpoint = docker.types.EndpointConfig(self.engine.api._version, aliases=[name])
        return self.engine.containers.create(
            image or self.image,
            name=f"{self.name}-{name}-{next(_number)}",
            hostname=name,
            network=self.network.name,
            networking_config={self.network.name: endpoint},
            labels=self.labels,
            **options,
        )

    def node(
        self,
        name: str,
        environment: Mapping[str, str] | None = None,
        *,
        volume: str | None = None,
        read_only_volume: bool = False,
        ports: Mapping[int, int] | None = None,
        image: str | None = None,
        **options: Any,
    ) -> Node:
        """As compose.yaml has them: nothing but the volume can be written to. `ports` are the same outside."""
        admin = free_port()
        published: dict[str, Any] = {ADMIN: ("127.0.0.1", admin)}
        published |= {f"{inside}/tcp": ("127.0.0.1", at) for inside, at in (ports or {}).items()}
        mounts = (
            {}
            if volume is None
            else {volume: {"bind": DATA, "mode": "ro" if read_only_volume else "rw"}}
        )
        container = self.container(
            name,
            image=image,
            environment=dict(environment or {}),
            volumes=mounts,
            ports=published,
            read_only=True,
            tmpfs={"/tmp": "size=512m"},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            **options,
        )
        return Node(self, container, admin)

    def shell(self, volume: str, command: str) -> None:
        """As root, in a container that has the volume."""
        made = self.container(
            "shell", entrypoint=["sh", "-c", command], user="0:0", volumes={volume: {"bind": DATA}}
        )
        made.start()
        code = made.wait(timeout=30)["StatusCode"]
        assert code == 0, made.logs().decode()
        made.remove()


def remove(engine: docker.DockerClient, label: str) -> None:
    """Containers, then what they hold; one that can't be removed does not keep the others."""
    for container in engine.containers.list(all=True, filters={"label": label}):
        with contextlib.suppress(NotFound):
            container.remove(force=True, v=True)
    for network in engine.networks.list(filters={"label": label}):
        with contextlib.suppress(NotFound):
            network.remove()
    for volume in engine.volumes.list(filters={"label": label}):
        with contextlib.suppress(NotFound, APIError):
            volume.remove(force=True)


def remove_what_dead_runs_left(engine: docker.DockerClient) -> None:
    """A run that was killed could not: its process is no more."""
    found = [each.labels for each in engine.containers.list(all=True, filters={"label": LABEL})]
    found += [each.attrs["Labels"] for each in engine.networks.list(filters={"label": LABEL})]
    found += [each.attrs["Labels"] for each in engine.volumes.list(filters={"label": LABEL})]
    for process in sorted({labels[LABEL] for labels in found}):
        if not Path(f"/proc/{process}").exists():
            remove(engine, f"{LABEL}={process}")


class Cluster:
    """The three nodes of compose.yaml in a lab, with other ports outside."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        services = compose()["services"]
        self.names = [name for name in services if name.startswith("fencepost-")]
        self.outside = {name: free_port() for name in self.names}
        self.volumes = {name: lab.volume() for name in self.names}
        self.environments = {name: self._environment(services[name], name) for name in self.names}
        self.nodes: dict[str, Node] = {}

    def _environment(self, service: Mapping[str, Any], name: str) -> dict[str, str]:
        (port,) = [each for each in service["ports"] if not each.endswith(":9644")]
        default = port.rpartition(":")[2]
        found = {key: str(value) for key, value in service["environment"].items()}
        return {
            key: value.replace(f":{default}", f":{self.outside[name]}")
            for key, value in found.items()
        }

    def make(self, name: str, image: str | None = None) -> Node:
        port = self.outside[name]
        self.nodes[name] = self.lab.node(
            name,
            self.environments[name],
            volume=self.volumes[name],
            ports={port: port},
            image=image,
            mem_limit="1g",
        )
        return self.nodes[name]

    def replace(self, name: str, image: str) -> None:
        """What `docker-compose up` does when the image is another: stop, remove, make anew with the same volume."""
        code = self.nodes[name].stop()
        assert code == 0, self.nodes[name].said
        self.nodes[name].container.remove()
        self.make(name, image).start()

    @property
    def inside_bootstrap(self) -> str:
        return ",".join(f"{name}:9092" for name in self.names)

    @property
    def outside_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.outside[name]}" for name in self.names)

    def wait_ready(self, seconds: float = 60.0) -> float:
        began = time.monotonic()
        for name in self.names:
            self.nodes[name].wait_ready(seconds)
        return time.monotonic() - began


def compose() -> dict[str, Any]:
    """compose.yaml with its variables' defaults, and the secret of these tests."""
    text = COMPOSE.read_text()
    for name, value in SECRET.items():
        text = _substituted(text, name, value)
    found: dict[str, Any] = yaml.safe_load(
        _substituted(text, "FENCEPOST_OUTSIDE_HOST", "127.0.0.1")
    )
    return found


def _substituted(text: str, name: str, value: str) -> str:
    while (start := text.find("${" + name + ":")) >= 0:
        text = text[:start] + value + text[text.index("}", start) + 1 :]
    return text


def archive(path: Path) -> bytes:
    """A file as `put_archive` wants it, readable to every user."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(path.name)
        entry.size, entry.mode = path.stat().st_size, 0o644
        with path.open("rb") as file:
            tar.addfile(entry, file)
    return buffer.getvalue()
