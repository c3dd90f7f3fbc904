"""The world as it is: asyncio, `os`, the wall clock.

INVARIANT  an exception that no one foresaw ends the process with exit code 70 (74 when it is the system's), nothing cleaned up.
PREVENTS   a node that serves on from a state that its own asserts call impossible.
PROVED BY  tests/cluster/base/test_real_env.py::test_a_broken_invariant_ends_the_process_with_70
"""

import asyncio
import contextlib
import os
import random
import resource
import secrets
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from .errors import MACHINE_ERRNOS, Trouble
from .exit_codes import EXIT_BROKEN, EXIT_MACHINE, exit_code_of
from .log import StreamLog, reason_of
from .ports import Log, Usage
from .process_usage import process_usage
from .real_disk import RealDisk
from .real_net import RealNet
from .tasks import TaskOwner

OF_THE_MACHINE: Final = (
    "This comes from the machine (a disk, a mount, a limit), and this node can't go on without what failed. Nothing that"
    " was acknowledged is lost by its end. Look at the kernel's log (dmesg), mend that, and start the node again."
)
BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"


class RealClock:
    """See `ports.Clock`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.steady = loop.time
        boot = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
        self.elapsed = loop.time if boot is None else partial(time.clock_gettime, boot)
        self._call_later = loop.call_later

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._call_later(seconds, call)


class RealEnv:
    """See `ports.Env`. Made inside a running loop, whichever it is (a node runs uvloop)."""

    def __init__(self, *, log: Log | None = None, rng: random.Random | None = None) -> None:
        loop = asyncio.get_running_loop()
        _raise_descriptor_limit()
        self.log: Log = StreamLog() if log is None else log
        self.clock = RealClock(loop)
        self.rng = random.Random(secrets.randbits(128)) if rng is None else rng
        self.tasks = TaskOwner(self.die)
        self.disk = RealDisk()
        self.net = RealNet(self.disk, self.tasks, self.log)
        self.boot_id = _boot_id()
        loop.set_exception_handler(self._on_loop_exception)

    def usage(self) -> Usage | None:
        return process_usage()

    def die(self, reason: BaseException) -> None:
        event, said, code = "broken_invariant", repr(reason), EXIT_BROKEN
        if isinstance(reason, Trouble):
            # A sentence about the world, such as a metadata log of a later version.
            event, said, code = "node_ends", str(reason), exit_code_of(reason, EXIT_BROKEN)
        elif isinstance(reason, OSError) and reason.errno in MACHINE_ERRNOS:
            event, said, code = "node_ends", f"{reason!r}. {OF_THE_MACHINE}", EXIT_MACHINE
        self.log.error(event, cause=said, exit_code=code, traceback=reason_of(reason))
        os._exit(code)

    def _on_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback that raised is a broken invariant; a transport that failed is the network's life."""
        reason = context.get("exception")
        if "handle" in context and isinstance(reason, BaseException):
            self.die(reason)
        self.log.warn("loop_exception", cause=f"{context.get('message')}: {reason!r}")

    async def close(self) -> None:
        """End all tasks and threads. A node that is killed does without."""
        await self.tasks.cancel_all()
        await self.net.close()
        self.disk.close()


@contextlib.asynccontextmanager
async def open_env(
    *, log: Log | None = None, rng: random.Random | None = None
) -> AsyncIterator[RealEnv]:
    """`async with open_env() as env:` inside `uvloop.run` or `asyncio.run`."""
    env = RealEnv(log=log, rng=rng)
    try:
        yield env
    finally:
        await env.close()


def _boot_id() -> str:
    try:
        with open(BOOT_ID_PATH, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        # Without one, every start counts as a start of the machine: slower, never wrong.
        return secrets.token_hex(16)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
