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


# A docker-compose whose nodes are not ready the first two times that somebody asks, after they were made anew.
STAND_IN = """#!/bin/sh
case "$1" in
  exec) left=$(cat "$3"); [ "$left" -eq 0 ] && exit 0; echo $((left - 1)) >"$3"; exit 1 ;;
  up) echo "up $4" $(cat fencepost-1 fencepost-2 fencepost-3) >>said; echo 2 >"$4" ;;
esac
"""


def test_the_next_version_waits_for_all_nodes_before_it_takes_one(tmp_path: Path) -> None:
    """Also for those that were not ready before it began: with one of three away already, the first would be the second."""
    readme = (COMPOSE.parent / "README.md").read_text()
    (script,) = re.findall(
        r"^## The next version.*?^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL
    )
    for name, text in (("docker-compose", STAND_IN), ("sleep", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name, left in zip(NODES, (0, 0, 3), strict=True):  # the third is catching up
        (tmp_path / name).write_text(f"{left}\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env={"PATH": path}, check=True, timeout=20)
    assert (tmp_path / "said").read_text().splitlines() == [f"up {name} 0 0 0" for name in NODES]
    assert {(tmp_path / name).read_text().strip() for name in NODES} == {"0"}


@pytest.mark.parametrize("readme", [ROOT / "README.md", COMPOSE.parent / "README.md"])
def test_a_command_that_is_pasted_does_not_swallow_those_behind_it(readme: Path) -> None:
    """`docker-compose exec` reads its input, with -T as well: from a terminal that is the next line."""
    for block in re.findall(r"^```sh\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines()[:-1]:
            assert "docker-compose exec" not in line or "</dev/null" in line, line


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
