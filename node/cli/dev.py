"""`fencepost dev`: a node, or a cluster on one machine, with nothing to configure.

Without `--nodes` the process that is started is the node. With it, it is the supervisor of that many (see
`supervisor.py`). The same command on the same folder goes on with what is there.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from fencepost.cluster.base.host_names import PORT_MAX

from .children import ADMIN_PORTS_APART, held, is_free
from .dev_folder import NODES_MAX, DevFolder, Refused, Taken, admin_port

EXIT_FAILED, EXIT_USAGE = 1, 2
EXIT_LATER: Final = 75  # as a node's (`cluster/base/exit_codes.py`, which is slow to import)
PORT: Final = 9092
DATA: Final = "data"
# What is each node's own, or follows from --nodes, --port and --data.
OWN: Final = (
    "node.id",
    "listeners",
    "advertised.listeners",
    "admin.listener",
    "log.dir",
    "log.dirs",
    "peer.listener",
    "peer.advertised.listener",
    "controller.quorum.voters",
)


class NotPossible(Refused):
    """By the words alone: nothing was touched."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes",
        type=_count,
        metavar="N",
        help="a cluster of so many nodes on this machine, each a process, ended with this one; "
        "without it this process is the only node",
    )
    parser.add_argument(
        "--port",
        type=_port,
        help=f"the client door's port on 127.0.0.1 ({PORT}); further nodes take the ports after it; "
        "0 takes any. Each admin door is 1000 above",
    )
    parser.add_argument("--data", help=f"the folder that keeps everything (./{DATA})")
    parser.add_argument(
        "--start",
        type=_count,
        metavar="NODE",
        help="start this node of the cluster that runs on --data again, and wait until it serves",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting by Kafka's name, such as flush.policy=os; may be repeated",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: say 0 to {PORT_MAX}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of nodes: say 1 to {NODES_MAX}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    folder = DevFolder(DATA if arguments.data is None else arguments.data)
    try:
        if arguments.start is not None:
            return _start_again(folder, arguments)
        if arguments.nodes is not None:
            return _supervise(folder, arguments)
        return _become_node(folder, arguments)
    except PermissionError as closed:  # a file in it, of another user
        if closed.filename is None:
            raise
        print(f"fencepost: {folder.not_ours(closed)}", file=sys.stderr)
        return EXIT_FAILED
    except Refused as refused:
        print(f"fencepost: {refused}", file=sys.stderr)
        if isinstance(refused, Taken):  # as a node ends then
            return EXIT_LATER
        return EXIT_USAGE if isinstance(refused, NotPossible) else EXIT_FAILED


def _become_node(folder: DevFolder, arguments: argparse.Namespace) -> int:
    """The node's own modules are imported only here: the supervisor does without them."""
    if folder.is_cluster:
        raise Refused(
            f"{folder.path} holds a cluster. Go on with it by `fencepost dev --nodes N --data "
            f"{folder.path}`, or give this node a folder of its own with --data."
        )
    from .start import start

    # A variable counts where no flag was given, as everywhere.
    flags = []
    if arguments.port is not None or "FENCEPOST_LISTENERS" not in os.environ:
        port = PORT if arguments.port is None else arguments.port
        flags.append(f"listeners=PLAINTEXT://127.0.0.1:{port}")
        if "FENCEPOST_ADMIN_LISTENER" not in os.environ:
            admin = admin_port(port) if port else 0
            _say_unusual({port: admin} if port else {})
            flags.append(f"admin.listener=127.0.0.1:{admin}")
    if arguments.data is not None or not _named(os.environ, ("log.dir", "log.dirs")):
        flags.append(f"log.dirs={folder.path}")
    return start(flags=[*flags, *arguments.set], file=None)


def _supervise(folder: DevFolder, arguments: argparse.Namespace) -> int:
    from .supervisor import Supervisor

    _refuse_own(arguments.set)
    port = PORT if arguments.port is None else arguments.port
    last = port + arguments.nodes - 1
    if last > PORT_MAX:
        raise NotPossible(
            f"--port {port}: node {arguments.nodes} would be at port {last}. Say {PORT_MAX - arguments.nodes + 1} or less"
        )
    with folder:
        layout = folder.layout(arguments.nodes, port)

        _say_unusual(dict(zip(layout.client_ports, layout.admin_ports, strict=True)))

        async def life() -> int:
            return await Supervisor(folder, layout, settings=arguments.set).run()

        with held([*layout.client_ports, *layout.peer_ports, *layout.admin_ports]):
            return asyncio.run(life())


def _start_again(folder: DevFolder, arguments: argparse.Namespace) -> int:
    from .start_again import ask_for_start

    if arguments.set:
        raise NotPossible(
            "--set is for the start of the whole cluster: a node that is started again has the "
            "settings of its supervisor. Change a running cluster's with `fencepost config set`."
        )
    return ask_for_start(folder, arguments.start)


def _say_unusual(admin_ports: Mapping[int, int]) -> None:
    """`admin_ports` by client port: people, and `txn parked`, look for a door where it usually is."""
    for client, admin in admin_ports.items():
        usual = client + ADMIN_PORTS_APART
        if admin != usual:
            why = "is taken" if usual <= PORT_MAX else "is none"
            if usual <= PORT_MAX and is_free(usual):
                why = "was taken when the cluster was made"
            print(
                f"fencepost: port {usual} {why}, so the admin door of the node at {client} is at 127.0.0.1:{admin}: commands"
                f" that ask there need --admin 127.0.0.1:{admin}",
                file=sys.stderr,
            )


def _refuse_own(flags: Sequence[str]) -> None:
    for name in (flag.partition("=")[0].strip() for flag in flags):
        if name in OWN:
            raise NotPossible(
                f"--set {name} can't hold for several nodes: it follows from --nodes, --port and "
                "--data. Nodes with settings of their own are started with `fencepost serve`."
            )
    for variable in _named(os.environ, OWN):
        raise NotPossible(
            f"{variable}={os.environ[variable]} can't hold for several nodes: it follows from --nodes, "
            f"--port and --data. Unset it: `env -u {variable} fencepost dev …`."
        )


def _named(environment: Mapping[str, str], names: Sequence[str]) -> list[str]:
    variables = [f"FENCEPOST_{name.upper().replace('.', '_')}" for name in names]
    return [variable for variable in variables if variable in environment]
