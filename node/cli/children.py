"""What a process gives to those that it starts: a port, and an end that is never later than its own.

INVARIANT  a process started with `die_with_parent` ends with the one that started it, however that one ends.
PREVENTS   a node that outlives a killed supervisor and answers the next one's clients on its port.
PROVED BY  tests/chaos/test_processes.py::test_a_child_dies_with_a_parent_that_was_killed
"""

import contextlib
import ctypes
import errno
import os
import random
import signal
import socket
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_FIRST: Final = 10_240
PORT_LAST: Final = 32_767  # below what kernels hand out by themselves, where that can't be asked
TRIES_MAX: Final = 1_000
ADMIN_PORTS_APART: Final = (
    1_000  # so far above its client door `fencepost dev` opens a node's admin door
)
# Another address of the loopback, on which a port is held for a node that is down for a while.
HOLD_HOST: Final = "127.77.77.77"


def is_free(port: int) -> bool:
    """Whether this process could listen on the loopback port now, and no other cluster's node is to come back to it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    try:
        hold(port).close()
    except OSError as taken:
        return taken.errno != errno.EADDRINUSE
    return True


def hold(port: int) -> socket.socket:
    """Keep a port for nodes that may be down, until the socket is closed; OSError when another holds it.

    Else a second cluster is given the port of a dead node, and the first one's clients, who know it by that port
    only, write there. Where the loopback has one address only, nothing is held and nothing is taken for held.
    """
    held = socket.socket()
    try:
        held.bind((HOLD_HOST, port))
    except OSError:
        held.close()
        raise
    return held


@contextlib.contextmanager
def held(ports: Collection[int]) -> Iterator[None]:
    """`hold` for the time of a `with`, as far as this machine's loopback allows it."""
    with contextlib.ExitStack() as sockets:
        for port in ports:
            with contextlib.suppress(OSError):
                sockets.enter_context(hold(port))
        yield


def free_port(taken: Collection[int] = ()) -> int:
    """A loopback port that nobody listens on now, and that the kernel gives to no connection.

    Nor on the one `ADMIN_PORTS_APART` above: a node that is given this one has its admin door there.

    A port of the kernel's own range would be lost while its node is down: the next client's connection may be
    given it, and one that dials the dead node again and again is in the end given that very port, and so
    talks to itself.
    """
    last = PORT_LAST
    if PORT_RANGE.exists():
        last = int(PORT_RANGE.read_text().split()[0]) - 1
    last = max(PORT_FIRST + TRIES_MAX, last - ADMIN_PORTS_APART)
    dice = random.SystemRandom()
    for _ in range(TRIES_MAX):
        port = dice.randint(PORT_FIRST, last)
        if port not in taken and is_free(port) and is_free(port + ADMIN_PORTS_APART):
            return port
    raise OSError(f"no free port between {PORT_FIRST} and {last} in {TRIES_MAX} tries")


def die_with_parent() -> None:
    """Run in the child between fork and exec; Linux only, elsewhere the parent's own stop ends it."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before the kernel was asked
            os.kill(os.getpid(), signal.SIGKILL)
