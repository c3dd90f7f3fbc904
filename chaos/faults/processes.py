"""Fencepost's nodes as processes of this machine: clients and nodes reach them through doors of ours alone."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepost.node.cli.dev_folder import Layout, node_settings
from fencepost.node.cli.supervisor import node_command

from ..harness.processes import Process
from .loopback import Loopback
from .proxy import HOST


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
    ) -> None:
        super().__init__(folder, nodes=nodes)
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

    def _process(self, node: int) -> Process:
        sets = [f"{name}={value}" for name, value in node_settings(self._layout).items()]
        sets += [*self._settings, *self._flags(node)]
        flags = [part for each in sets for part in ("--set", each)]
        return Process(
            [*node_command(), *flags], log=self.log(node), environment=self._environment_of(node)
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
