"""What a process gives to those that it starts: a port, and an end that is never later than its own.

INVARIANT  a process started with `die_with_parent` ends with the one that started it, however that one ends.
PREVENTS   a node that outlives a killed supervisor and answers the next one's clients on its port.
PROVED BY  tests/chaos/test_processes.py::test_a_child_dies_with_a_parent_that_was_killed
"""

import ctypes
import os
import random
import signal
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_FIRST: Final = 10_240
PORT_LAST: Final = 32_767  # below what kernels hand out by themselves, where that can't be asked
TRIES_MAX: Final = 1_000


def is_free(port: int) -> bool:
    """Whether this process could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(taken: Collection[int] = ()) -> int:
    """A loopback port that nobody listens on now, and that the kernel gives to no connection.

    A port of the kernel's own range would be lost while its node is down: the next client's connection may be
    given it, and one that dials the dead node again and again is in the end given that very port, and so
    talks to itself.
    """
    last = PORT_LAST
    if PORT_RANGE.exists():
        last = max(PORT_FIRST + TRIES_MAX, int(PORT_RANGE.read_text().split()[0]) - 1)
    dice = random.SystemRandom()
    for _ in range(TRIES_MAX):
        port = dice.randint(PORT_FIRST, last)
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port between {PORT_FIRST} and {last} in {TRIES_MAX} tries")


def die_with_parent() -> None:
    """Run in the child between fork and exec; Linux only, elsewhere the parent's own stop ends it."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before the kernel was asked
            os.kill(os.getpid(), signal.SIGKILL)
