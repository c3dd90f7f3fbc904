"""What code may ask of the world: time, chance, tasks, disk and network, and nothing else.

INVARIANT  outside `cluster/base` no code reads a clock, rolls a die, opens a file or a socket.
PREVENTS   a run that can't be replayed from its seed, so a bug that can't be looked at.
PROVED BY  tests/tidy/test_banned_words.py::test_only_env_touches_the_world

`Env` is handed to whoever needs it. The real one is `cluster/base/real_env.py`; the simulated one is
`chaos/sim/world.py`. asyncio's own primitives (Future, Event, Queue, Lock, TaskGroup, timeout) may be used
anywhere in shells: they take their time from the running loop, which in a simulation is virtual.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall time for what is written down, steady time for what is measured."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch. May jump; never use it to measure a wait."""

    def steady(self) -> float:
        """Seconds from an arbitrary start that never go back (the event loop's time)."""

    def elapsed(self) -> float:
        """The same, and goes on while the machine is suspended: for how long ago something was, not for how long to wait."""

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Run `call` on the loop after `seconds`; `.cancel()` on what is returned prevents it."""


class File(Protocol):
    """One open file that grows at its end. Positions are bytes from its start.

    What was appended is readable at once, and survives a crash of the process; only what was synced
    survives a crash of the machine. A failed append leaves no partial bytes behind the size it reports:
    the implementation cuts back to the old size, or closes the file if it can't.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, chunks: Sequence[Buffer]) -> None:
        """Write all chunks at the end, in order, with one call where the system can. Raises OSError."""

    def write_at(self, position: int, data: Buffer) -> None: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file. May block on a disk."""

    def read_cached(self, position: int, length: int) -> bytes | None:
        """The same when it needs no disk; None when it would block (use `Disk.run(file.read, …)`)."""

    def read_once(self, position: int, length: int) -> bytes:
        """As `read`, by whoever looks at everything once: what was not in memory before is not kept there."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Block until all that was written is durable. On the loop use `Disk.sync` instead."""

    def close(self) -> None: ...


class Disk(Protocol):
    """The folders of one node. Paths are absolute strings; errors are OSError with their errno."""

    @property
    def cut_bytes(self) -> int:
        """A file is cut at multiples of it if what was sent of it may be on its way yet (sendfile)."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; an empty list when there is no such folder."""

    def make_folders(self, path: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; durable only after `sync_folder` of the folder that holds `target`."""

    def sync_folder(self, path: str) -> None:
        """Make creations, removals and renames in this folder durable."""

    def read_all(self, path: str) -> bytes: ...

    def replace(self, path: str, data: Buffer) -> None:
        """Make the file hold just `data`, durably and atomically: temporary file, sync, rename, folder sync."""

    def place(self, path: str, data: Buffer) -> None:
        """The same without the last step: after a `sync_folder` of its folder it is durable."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """The size of the disk that holds `path`."""

    def lock(self, path: str) -> Callable[[], None]:
        """Hold `path` against any other process; returns the release. BlockingIOError when it is held."""

    async def sync(self, files: Sequence[File]) -> None:
        """Make all `files` durable without blocking the loop. Raises OSError of the first that failed."""

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Run slow disk work off the loop's thread (at once, on virtual time, in a simulation)."""

    async def run_aside(self, work: Callable[..., T], *args: Any) -> T:
        """The same for what nobody waits for. A simulation gives it dice of its own."""


class FileSlice:
    """A range of a file that stands for its bytes in `Connection.write`, so that nothing copies it before."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length


Chunk = bytes | bytearray | memoryview | FileSlice


class Connection(Protocol):
    """A byte stream to one peer. Both of our binary doors frame it: four bytes of length, then the frame."""

    @property
    def remote(self) -> tuple[str, int]: ...

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """What `SSLSocket.getpeercert` gives, on a TLS connection whose peer showed a certificate."""

    @property
    def received_bytes(self) -> int:
        """All that came in so far, in whole frames or not: while it grows, the other end lives."""

    async def secure(self) -> None:
        """Shake hands, where the listener that accepted it has TLS; until then it can only be closed or aborted.

        ConnectionLost when that fails, or when it is aborted meanwhile. Without TLS there is nothing to wait for.
        """

    async def read_frame(self, size_max: int) -> memoryview | None:
        """The next frame without its length; None at a clean end between frames.

        FrameRefused when the length is negative or over `size_max`, ConnectionLost at an end inside a frame.
        """

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Queue bytes to be sent in order; never blocks. Ignored once the connection is closed."""

    async def drain(self) -> None:
        """Wait until the peer has taken enough that more may be written. ConnectionLost if it went away."""

    def close(self) -> None:
        """Send what was queued, then close."""

    def abort(self) -> None:
        """Close at once; what was queued is lost."""

    async def wait_closed(self) -> None: ...


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port is the real one when 0 was asked for."""

    async def close(self) -> None:
        """Stop accepting. Open connections stay."""


class HttpRequest(NamedTuple):
    """What came in at an HTTP door: the path as it was sent, of a query's names the last value, the body as it is."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    # Of the headers: whom the client thinks it asks, whose page made it ask, if a browser did, which forms of answer it
    # takes, and what it shows for who it is.
    host: str = ""
    origin: str = ""
    accept: str = ""
    authorization: str = ""
    remote: str = ""  # the address that it came from


class HttpReply(NamedTuple):
    status: int
    body: bytes
    content_type: str = "application/json"


OnHttp = Callable[[HttpRequest], Coroutine[Any, Any, HttpReply]]
# Sees a request before its body. None: read it, and serve the request.
OnHttpHead = Callable[[HttpRequest], Coroutine[Any, Any, HttpReply | None]]


class Accepted(NamedTuple):
    """The connections that came to this process, through all its doors; also those that still shake hands."""

    open: int
    open_max: (
        int  # then a door that is not essential takes no more: the logs need the other descriptors
    )
    descriptors_max: int
    pauses: int  # times that a door took none for a moment, for want of descriptors


class Net(Protocol):
    async def listen_http(
        self,
        host: str,
        port: int,
        serve: OnHttp,
        *,
        body_bytes_max: int,
        judge: OnHttpHead | None = None,
    ) -> Listener:
        """Answer HTTP requests, each in a task of its own that ends when its client hangs up.

        What `judge` answers has no body read; without it all are served. A body over the limit is refused with 413
        before `serve` hears of it. If either of them raises, the node dies.
        """

    async def listen(
        self,
        host: str,
        port: int,
        on_connect: Callable[[Connection], Awaitable[None]],
        *,
        tls: ssl.SSLContext | None = None,
        essential: bool = False,
    ) -> Listener:
        """Accept connections; each is served by a task of its own running `on_connect`, closed when it ends.

        An `essential` listener accepts when all others have as many connections as they may, and bounds its own.
        With `tls` it is for `on_connect` to call `secure`, so that who never shakes hands can be bounded, too.
        """

    async def connect(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = 10.0
    ) -> Connection:
        """Raises ConnectionLost (outcome REFUSED) when there is nobody or the time is over.

        ConnectionRefused when the machine itself answers that nobody listens there.
        """

    def accepted(self) -> Accepted | None:
        """None where no descriptors are counted, in a simulation."""


class Tasks(Protocol):
    """The owner of a node's long-lived tasks."""

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run `work`. If it raises anything but CancelledError the node dies: a task that may fail must say how."""

    async def cancel_all(self) -> None: ...


class Log(Protocol):
    """Structured events: a short name and fields. One JSON object a line on a node, a list in a simulation.

    Names and sentences stand in `log_events.py`; `partition="orders-3"` becomes a topic and a number; whose request it
    was is added to the line (`request_scope.py`).
    """

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None: ...

    def warn(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


class Usage(NamedTuple):
    """What this process takes of its machine. Seconds, bytes; `started_s` since the epoch; -1 where it can't be told."""

    cpu_s: float
    resident_bytes: int
    virtual_bytes: int
    open_fds: int
    max_fds: int
    threads: int
    started_s: float


class Env(Protocol):
    """All of the world that a node may touch."""

    @property
    def clock(self) -> Clock: ...

    @property
    def rng(self) -> random.Random: ...

    @property
    def disk(self) -> Disk: ...

    @property
    def net(self) -> Net: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def log(self) -> Log: ...

    @property
    def boot_id(self) -> str:
        """Changes when the machine restarts: whether the page cache of an earlier process is still there."""

    def usage(self) -> Usage | None:
        """May take a while: ask by `Disk.run`. None where there is no process, in a simulation."""

    def die(self, reason: BaseException) -> None:
        """A broken invariant: say so and end the process with exit code 70, without cleaning up."""
