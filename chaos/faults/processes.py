"""Fencepost's nodes as processes of this machine: clients and nodes reach them through doors of ours alone."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepost.node.cli.dev_folder import Layout, node_settings
from fencepost.node.cli.supervisor import node_command

from ..harness.asking import Address
from ..harness.processes import Process
from . import older as older_builds
from .builds import Builds
from .loopback import Loopback
from .proxy import HOST
from .system import BY_ANY_CLOCK, UPGRADE


class Processes(Loopback):
    """As `fencepost dev --nodes N` would have them, but for their addresses. `settings` are NAME=VALUE, for all."""

    name = "processes"
    can = frozenset({"kill", "pause", "cut", "one-way", "slow", "damage", "members", "drain"})

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        older: str = older_builds.OLDER,
        begins_older: bool = False,
    ) -> None:
        super().__init__(folder, nodes=nodes)
        self._of_builds = Builds(older, self.nodes, begins_older=begins_older)
        if self._of_builds.why_none:
            self.wants = {**self.wants, UPGRADE: self._of_builds.why_none}
        else:
            self.can |= {UPGRADE}
        self._peers = {node: self.door(node) for node in self.nodes}
        self._admins = {node: self.ports.one() for node in self.nodes}
        self._layout = Layout(
            client_ports=tuple(self._behind.values()),
            peer_ports=tuple(port for port, _ in self._peers.values()),
            admin_ports=tuple(self._admins.values()),
        )
        self._settings = list(settings)
        self._environment = {
            "FENCEPOST_PEER_SECRET": secrets.token_urlsafe(32),
            **(environment or {}),
        }

    def admin(self, node: int) -> str:
        """The address of its admin door."""
        return f"http://{HOST}:{self._admins[node]}"

    @property
    def admins(self) -> Mapping[int, Address]:
        return {node: (HOST, port) for node, port in self._admins.items()}

    # -- builds ----------------------------------------------------------------------------------

    @property
    def builds(self) -> Mapping[int, str]:
        return dict(self._of_builds.of)

    def take_build(self, node: int, build: str) -> None:
        self._of_builds.take(node, build)

    def begin(self) -> float:
        if self._of_builds.of:
            older_builds.make(self._of_builds.older, self._made)
        return super().begin()

    @property
    def _made(self) -> Path:
        return self.data / "older"

    # -- one node --------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        process = self.processes[node]
        if not process.alive:
            process.command = self._command(node)
        super().start(node)

    def _command(self, node: int) -> list[str]:
        older = self._of_builds.is_older(node)
        program = older_builds.command(self._made) if older else node_command()
        own = node_settings(self._layout) | BY_ANY_CLOCK
        sets = [f"{name}={value}" for name, value in own.items()]
        sets += [*self._settings, *self._flags(node)]
        return [*program, *(part for each in sets for part in ("--set", each))]

    def _process(self, node: int) -> Process:
        return Process(
            self._command(node), log=self.log(node), environment=self._environment_of(node)
        )

    def _environment_of(self, node: int) -> Mapping[str, str]:
        return {**self._environment, **self._lies_to(node)}

    def _flags(self, node: int) -> Sequence[str]:
        """What makes this node this one: it listens behind doors, and tells of the doors."""
        layout = self._layout
        flags = [
            f"node.id={node}",
            f"listeners=PLAINTEXT://{HOST}:{self._behind[node]}",
            f"advertised.listeners=PLAINTEXT://{HOST}:{self._proxied[node]}",
            f"admin.listener={layout.admin_address(node)}",
            f"log.dirs={self.folder(node)}",
        ]
        if len(self.nodes) > 1:
            voters = ",".join(f"{n}@{layout.peer_address(n)}" for n in range(1, layout.voters + 1))
            port, behind = self._peers[node]
            flags += [
                f"peer.listener={HOST}:{behind}",
                f"peer.advertised.listener={HOST}:{port}",
                f"controller.quorum.voters={voters}",
            ]
        return flags
