"""compose.yaml: what Debian's docker-compose and what a node make of it."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from containers import COMPOSE, ROOT, SECRET, compose
from fencepost.node.config import NodeConfig
from support.needs import give_up

NODES = ("fencepost-1", "fencepost-2", "fencepost-3")


def rendered(*options: str) -> dict[str, Any]:
    """`docker-compose config`: variables and anchors are resolved, unknown fields refused."""
    command = shutil.which("docker-compose")
    if command is None:
        give_up("needs docker-compose: there is no `docker-compose` on the PATH")
    asked = subprocess.run(
        [command, "--file", str(COMPOSE), *options, "config"],
        env=os.environ | SECRET,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    found: dict[str, Any] = yaml.safe_load(asked.stdout)
    return found


@pytest.mark.slow
def test_docker_compose_understands_the_file() -> None:
    assert sorted(rendered()["services"]) >= sorted(NODES)
    assert {"prometheus", "grafana"} <= set(rendered("--profile", "monitoring")["services"])


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_each_service_is_a_node_that_clients_within_and_without_are_told_the_way_to(
    node_id: int,
) -> None:
    name = f"fencepost-{node_id}"
    service = compose()["services"][name]
    environment = {key: str(value) for key, value in service["environment"].items()}
    config = NodeConfig.load(flags=(), environment=environment, file=None)
    assert config.node_id == node_id
    assert service["hostname"] == name
    assert config.peers.advertised == config.peers.voters[config.node_id] == (name, 9192)
    inside, outside = config.advertised
    assert (inside.host, inside.port) == (name, config.listeners[0].port)
    assert (outside.host, outside.port) == ("127.0.0.1", config.listeners[1].port)
    assert any(each.endswith(f":{outside.port}:{outside.port}") for each in service["ports"])
    assert service["volumes"] == [f"{name}:/var/lib/fencepost"]


def test_nobody_starts_a_cluster_without_a_secret() -> None:
    assert "${FENCEPOST_PEER_SECRET:?" in COMPOSE.read_text()


def test_what_was_started_with_a_profile_is_ended_with_it() -> None:
    """`docker compose down` leaves a profile's services as they are unless it is named: those, their volumes, and the
    network that they hold would stay, and come back with the machine."""
    readme = (ROOT / "README.md").read_text()
    ended = re.findall(r"docker-compose[^`\n]* down\b[^`\n]*", readme)
    assert "--profile monitoring up" in readme
    assert ended
    assert all("--profile monitoring" in each for each in ended), ended


def test_what_compose_mounts_is_there() -> None:
    services = compose()["services"]
    for name in ("prometheus", "grafana"):
        for mount in services[name]["volumes"]:
            source = mount.split(":")[0]
            if source.startswith("."):
                assert Path(COMPOSE.parent, source).resolve().is_relative_to(ROOT / "deploy")
                assert Path(COMPOSE.parent, source).is_dir(), f"{name} mounts {source}"
