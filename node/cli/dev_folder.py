"""The folder of `fencepost dev --nodes N`: whose it is, which ports its nodes have, and their secret.

INVARIANT  one supervisor holds the folder at a time, and a cluster keeps its number of nodes.
PREVENTS   two supervisors starting the same nodes; a quorum whose members disagree on who votes.
PROVED BY  tests/node/test_cli_dev_folder.py::test_a_folder_with_another_number_of_nodes_is_refused

    DIR/cluster.json      how many nodes there are and their ports
    DIR/peer.secret       what the nodes prove to each other, for this user's eyes only
    DIR/supervisor.lock   held while a supervisor runs; its process id. It goes again where a start made no cluster
    DIR/supervisor.sock   where that one is asked to start a node again
    DIR/node-1/           a node's data, and its `pid`, `log` and `node.toml`
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from fencepost.cluster.base.host_names import PORT_MAX

from .children import ADMIN_PORTS_APART, free_port, is_free
from .printable import quoted

CLUSTER: Final = "cluster.json"
SECRET: Final = "peer.secret"  # noqa: S105 - a file's name
LOCK: Final = "supervisor.lock"
SOCKET: Final = "supervisor.sock"
ONE_NODE: Final = "meta.properties"  # what a node writes into its own folder
NODES_MAX: Final = 9


class Refused(Exception):
    """Why the command can't do that with this folder, in a sentence."""


class Taken(Refused):
    """Something holds what is needed; the same start may work later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the nodes of one folder listen; node i is at place i-1."""

    client_ports: tuple[int, ...]
    peer_ports: tuple[int, ...]
    admin_ports: tuple[int, ...]

    @property
    def nodes(self) -> int:
        return len(self.client_ports)

    @property
    def voters(self) -> int:
        """One, three or five vote; further nodes follow the metadata as readers."""
        return 5 if self.nodes >= 5 else 3 if self.nodes >= 3 else 1

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.client_ports[number - 1]}"

    def peer_address(self, number: int) -> str:
        return f"127.0.0.1:{self.peer_ports[number - 1]}"

    def admin_address(self, number: int) -> str:
        return f"127.0.0.1:{self.admin_ports[number - 1]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(number) for number in range(1, self.nodes + 1))


class DevFolder:
    """Open it before anything in it is changed; `close` lets the next supervisor in."""

    def __init__(self, path: str) -> None:
        self.path = Path(os.path.abspath(path))
        self._lock: int | None = None

    def node(self, number: int) -> Path:
        return self.path / f"node-{number}"

    @property
    def is_cluster(self) -> bool:
        return self._has(CLUSTER)

    def _has(self, name: str) -> bool:
        try:
            return (self.path / name).exists()
        except OSError as refused:  # not that it isn't there
            raise self.not_ours(refused) from refused

    def not_ours(self, refused: OSError) -> Refused:
        return Refused(
            f"{refused.filename or self.path}: {refused.strerror}. It must be a folder, or be made as one, that this user may"
            " read and write, with all that is in it; choose another with --data."
        )

    # -- held by one supervisor ------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._has(ONE_NODE):
            raise Refused(
                f"{self.path} holds a node that was started without --nodes. Go on with that one by "
                f"`fencepost dev --data {quoted(str(self.path))}`, or give the cluster a folder of its own with --data."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as refused:
            raise self.not_ours(refused) from refused
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 32).decode() or "not yet named"
            self.close()
            raise Taken(
                f"{self.path} has a running cluster, whose supervisor is process {holder.strip()}. "
                "Stop that one, give this one another folder with --data, or start a node of it "
                f"again: `fencepost dev --data {quoted(str(self.path))} --start NODE`."
            ) from None
        if not self._holds_what_is_there():  # whoever held it has just taken it away
            self.close()
            return self.__enter__()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        return self

    def _holds_what_is_there(self) -> bool:
        assert self._lock is not None
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._lock), (self.path / LOCK).stat())
        return False

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, Refused):
            # Nothing came of it, and a node alone begins with no folder that is not empty.
            if self._lock is not None and not self.is_cluster:
                (self.path / LOCK).unlink()
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- what is remembered ----------------------------------------------------------------------

    def layout(self, nodes: int, port: int) -> Layout:
        """The ports of this start. They stay what they were, unless another took one meanwhile."""
        kept = self._remembered()
        if kept is not None and kept.nodes != nodes:
            raise Refused(
                f"{self.path} holds a cluster with --nodes {kept.nodes}, and this would be {nodes}: "
                "its quorum would no longer agree on who votes. Go on with "
                f"`fencepost dev --nodes {kept.nodes} --data {quoted(str(self.path))}`, or choose another folder."
            )
        clients = _client_ports(nodes, port, kept)
        peers: list[int] = []
        for old in kept.peer_ports if kept else (0,) * nodes:
            keep = old and old not in clients and is_free(old)
            peers.append(old if keep else free_port({*clients, *peers}))
        admins: list[int] = []
        # With other client ports people look elsewhere for the admin doors, too.
        same = kept is not None and kept.client_ports == clients and kept.admin_ports
        for client, old in zip(clients, same or (0,) * nodes, strict=True):
            taken = {*clients, *peers, *admins}
            keep = old and old not in taken and is_free(old)
            admins.append(old if keep else admin_port(client, taken))
        layout = Layout(client_ports=clients, peer_ports=tuple(peers), admin_ports=tuple(admins))
        _write(self.path / CLUSTER, json.dumps({"version": 1, **asdict(layout)}, indent=1) + "\n")
        return layout

    def _remembered(self) -> Layout | None:
        path = self.path / CLUSTER
        if not path.exists():
            return None
        try:
            kept: dict[str, Any] = json.loads(path.read_text())
            layout = Layout(
                client_ports=tuple(map(int, kept["client_ports"])),
                peer_ports=tuple(map(int, kept["peer_ports"])),
                admin_ports=tuple(map(int, kept.get("admin_ports", ()))),
            )
        except (ValueError, KeyError, TypeError) as damaged:
            raise Refused(
                f"{path} can't be read ({damaged}). It says how many nodes there are: remove it, and "
                "the next start with the same --nodes writes it anew."
            ) from damaged
        if not 1 <= layout.nodes == len(layout.peer_ports):
            raise Refused(f"{path} names {layout.nodes} nodes and {len(layout.peer_ports)} peers")
        if len(layout.admin_ports) not in (0, layout.nodes):
            raise Refused(
                f"{path} names {layout.nodes} nodes and {len(layout.admin_ports)} admin doors"
            )
        return layout

    def secret(self) -> str:
        """Made once; whoever can read it can be taken for a node of this cluster."""
        path = self.path / SECRET
        if not path.exists() or not path.read_text().strip():
            _write(path, secrets.token_urlsafe(32) + "\n")
        return path.read_text().strip()


def _client_ports(nodes: int, port: int, kept: Layout | None) -> tuple[int, ...]:
    if port == 0:
        if kept is not None and all(map(is_free, kept.client_ports)):
            return kept.client_ports
        found: list[int] = []
        for _ in range(nodes):
            found.append(free_port(found))
        return tuple(found)
    ports = tuple(range(port, port + nodes))
    taken = [str(each) for each in ports if not is_free(each)]
    if taken:
        raise Taken(
            f"something listens on 127.0.0.1:{', '.join(taken)} already. The nodes take ports {port} to "
            f"{ports[-1]}: stop what is there, or choose others with --port PORT."
        )
    return ports


def admin_port(client_port: int, taken: Collection[int] = ()) -> int:
    """Where people look for it, `ADMIN_PORTS_APART` above the client door, unless that port is somebody else's."""
    usual = client_port + ADMIN_PORTS_APART
    if usual <= PORT_MAX and usual not in taken and is_free(usual):
        return usual
    return free_port(taken)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for this user alone: the secret goes this way too."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def node_settings(layout: Layout) -> dict[str, str]:
    """Defaults of a cluster on one machine; a variable or --set beats them."""
    copies = min(layout.nodes, 3)
    in_sync = max(copies - 1, 1)
    return {
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
    }


def node_flags(layout: Layout, folder: DevFolder, number: int) -> Sequence[str]:
    """What makes this node this one: nothing may beat it."""
    flags = [
        f"node.id={number}",
        f"listeners=PLAINTEXT://{layout.address(number)}",
        f"admin.listener={layout.admin_address(number)}",
        f"log.dirs={folder.node(number)}",
    ]
    if layout.nodes > 1:
        voters = ",".join(f"{n}@{layout.peer_address(n)}" for n in range(1, layout.voters + 1))
        flags += [
            f"peer.listener={layout.peer_address(number)}",
            f"controller.quorum.voters={voters}",
        ]
    return flags
