"""The process behind `fencepost dev --nodes N`: it starts the nodes, says when all serve, and ends them.

INVARIANT  a node runs only as a child of the supervisor that holds the folder, and is never started by itself
           again: who was killed stays down until `--start` asks for it.
PREVENTS   a test that looks at a cluster without a node and meets one that was quietly revived.
PROVED BY  tests/node/test_cli_supervisor.py::test_a_node_that_was_killed_stays_down_until_it_is_asked_for
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .children import die_with_parent
from .dev_folder import SOCKET, DevFolder, Layout, node_flags, node_settings
from .printable import quoted
from .start_again import inside, say

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
STOP_S: Final = 30.0  # for a node that was told to stop
# Who passes signals on, as timeout(1), may tell one twice: only a later one means haste.
TWICE_S: Final = 0.5
GRACE_S: Final = 0.3  # SIGKILL is delivered later than `kill` returns
REMIND_S: Final = 20.0
START_S: Final = 120.0  # how long `--start` waits for a node that runs and doesn't serve
LOG_TAIL: Final = 64_000  # bytes: the last line may hold a traceback
LINE_MAX: Final = 1 << 16
READY: Final = b"ready "


def node_command() -> list[str]:
    return [sys.executable, "-m", "fencepost.node.main", "serve"]


# Events of a node's log that say why it ended.
_LAST_EVENTS: Final = ("broken_invariant", "node_ends", "node_refused")


def _last_sentence(line: str) -> str | None:
    """What a line says of a node's end: before it has a log of its own, or in that."""
    if line.startswith("fencepost: "):
        return line.removeprefix("fencepost: ")
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or told.get("event") not in _LAST_EVENTS:
        return None
    return str(told.get("cause", ""))


class Child:
    """One node: its process while it runs, and its files."""

    def __init__(
        self, number: int, folder: Path, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.number = number
        self.folder = folder
        self.log = folder / "log"
        self.pid_file = folder / "pid"
        self._command = command
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0
        self.serves = asyncio.Event()
        self.ended = asyncio.Event()
        self.ended.set()

    @property
    def runs(self) -> bool:
        return not self.ended.is_set()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        assert not self.runs, f"node {self.number} runs"
        self.folder.mkdir(exist_ok=True)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self.serves.clear()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
                preexec_fn=die_with_parent,
                start_new_session=True,  # Ctrl-C is the supervisor's to pass on
            )
        self.ended.clear()
        self.pid_file.write_text(f"{self._process.pid}\n")

    async def follow(self) -> None:
        """Until the process ends."""
        process = self._process
        assert process is not None and process.stdout is not None
        while line := await process.stdout.readline():
            if line.startswith(READY):
                self.serves.set()
        await process.wait()
        self.serves.clear()
        self.pid_file.unlink(missing_ok=True)
        self.ended.set()

    def signal(self, number: int) -> None:
        if self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def last_words(self) -> str:
        """What it said to a person in this run, or where to look."""
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - LOG_TAIL))
            lines = log.read().decode(errors="replace").splitlines()
        said = [sentence for line in lines if (sentence := _last_sentence(line)) is not None]
        if said:
            return said[-1]
        return f"{lines[-1]}; its log is {self.log}" if lines else f"its log is {self.log}"

    def how_it_ended(self) -> str:
        code = self.exit_code
        assert code is not None
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}: {self.last_words()}"


class Supervisor:
    """`await Supervisor(…).run()` is the whole life of a cluster of one machine."""

    def __init__(
        self,
        folder: DevFolder,
        layout: Layout,
        *,
        settings: Sequence[str] = (),
        command: Sequence[str] | None = None,
    ) -> None:
        self.folder = folder
        self.layout = layout
        environment = dict(os.environ)
        if layout.nodes > 1:  # not among the arguments, which everybody on the machine can read
            environment.setdefault("FENCEPOST_PEER_SECRET", folder.secret())
        self.children = {
            number: Child(
                number,
                folder.node(number),
                [*(command or node_command()), *self._arguments(number, settings)],
                environment,
            )
            for number in range(1, layout.nodes + 1)
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self._told_to_stop = asyncio.Event()
        self._is_hurried, self._asked_at = asyncio.Event(), 0.0
        self._is_starting = True

    def _arguments(self, number: int, settings: Sequence[str]) -> list[str]:
        file = self.folder.node(number) / "node.toml"
        sets = [*settings, *node_flags(self.layout, self.folder, number)]
        return ["--config", str(file), *(part for each in sets for part in ("--set", each))]

    # -- the life of all ---------------------------------------------------------------------------

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._stop_was_asked)
        door = await self._open_door()
        try:
            self._write_settings(node_settings(self.layout))
            for child in self.children.values():
                await self._start(child)
            if served := await self._all_serve():
                print(f"ready {self._bootstrap()}", flush=True)
                say(f"admin doors: {', '.join(map(self._admin_door, self.children))}")
                if sys.stderr.isatty():
                    say(f"each node's log is {self.folder.path}/node-N/log; Ctrl-C stops all")
                self._is_starting = False
                await self._told_to_stop.wait()
            was_told = self._told_to_stop.is_set()
            await self._stop()
            return EXIT_OK if served else self._why_it_failed(was_told=was_told)
        finally:
            door.close()
            (self.folder.path / SOCKET).unlink(missing_ok=True)
            await self._kill()

    def _stop_was_asked(self) -> None:
        self._asked_at = self._asked_at or time.monotonic()
        if time.monotonic() - self._asked_at > TWICE_S:
            self._is_hurried.set()
        self._told_to_stop.set()

    def _write_settings(self, settings: Mapping[str, str]) -> None:
        lines = ["# Written by `fencepost dev` at each start; --set and FENCEPOST_… beat it."]
        lines += [f'"{name}" = {value}' for name, value in settings.items()]
        for child in self.children.values():
            child.folder.mkdir(exist_ok=True)
            (child.folder / "node.toml").write_text("\n".join(lines) + "\n")

    async def _start(self, child: Child) -> None:
        await child.start()
        task = asyncio.get_running_loop().create_task(self._follow(child))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, child: Child) -> None:
        await child.follow()
        if self._told_to_stop.is_set():
            return
        if child.exit_code == EXIT_USAGE and self._is_starting:
            self._told_to_stop.set()  # the others were told the same and will say the same
            return
        say(
            f"node {child.number} {child.how_it_ended()}\n  it stays down until "
            f"`fencepost dev --data {quoted(str(self.folder.path))} --start {child.number}`"
        )

    def _admin_door(self, number: int) -> str:
        return f"http://{self.layout.admin_address(number)}"

    def _bootstrap(self) -> str:
        serving = [child.number for child in self.children.values() if child.serves.is_set()]
        return ",".join(map(self.layout.address, serving))

    @property
    def _can_decide(self) -> bool:
        """Whether enough voters run to elect a leader of the quorum."""
        voters = [self.children[number] for number in range(1, self.layout.voters + 1)]
        return 2 * sum(child.runs for child in voters) > len(voters)

    async def _all_serve(self) -> bool:
        """True once every node that runs serves; False when that can't come, or it is to stop."""
        while not self._told_to_stop.is_set():
            running = [child for child in self.children.values() if child.runs]
            late = [child for child in running if not child.serves.is_set()]
            if not late:
                return bool(running)
            if not self._can_decide:
                return False
            if not await self._any_of(late[0].serves, late[0].ended, self._told_to_stop):
                say(f"still waiting for node {late[0].number}; its log is {late[0].log}")
        return False

    async def _any_of(self, *events: asyncio.Event, timeout_s: float = REMIND_S) -> bool:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return bool(done)

    def _why_it_failed(self, *, was_told: bool) -> int:
        refused = [c for c in self.children.values() if c.exit_code == EXIT_USAGE]
        if refused:
            say(refused[0].last_words())
            return EXIT_USAGE
        if was_told:  # before all served
            return EXIT_OK
        say("too few nodes are left to serve")
        return EXIT_FAILED

    async def _stop(self) -> None:
        """All at once: who leads hands over to whoever is still there."""
        self._told_to_stop.set()
        children = [child for child in self.children.values() if child.runs]
        for child in children:
            child.signal(signal.SIGCONT)  # a paused process can't stop
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while late := [child for child in children if child.runs]:
            left = deadline - time.monotonic()
            await self._any_of(late[0].ended, self._is_hurried, timeout_s=max(left, 0.0))
            if late[0].runs and (left <= 0 or self._is_hurried.is_set()):
                names = ", ".join(str(child.number) for child in late if child.runs)
                why = "did not stop in time" if left <= 0 else "had no time to stop"
                say(f"node {names} {why} and is killed; nothing is lost")
                return
        for child in children:
            if child.exit_code not in (EXIT_OK, EXIT_USAGE, -signal.SIGTERM):
                say(f"node {child.number} {child.how_it_ended()}")

    async def _kill(self) -> None:
        for child in self.children.values():
            child.signal(signal.SIGKILL)
        while self._tasks:
            await asyncio.wait(self._tasks)

    # -- asked from outside ------------------------------------------------------------------------

    async def _open_door(self) -> asyncio.Server:
        door = _bind(self.folder)
        return await asyncio.start_unix_server(self._serve, sock=door, limit=LINE_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            asked = json.loads(await reader.readline() or b"{}")
            answer = await self._start_again(asked.get("start"))
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _start_again(self, number: Any) -> dict[str, str]:
        child = self.children.get(number)
        if child is None:
            return {"refused": f"there is no node {number}; there are 1 to {self.layout.nodes}"}
        if child.runs:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.ended.wait(), GRACE_S)
        if self._told_to_stop.is_set():
            return {"refused": "the cluster is being stopped"}
        note = {}
        if child.runs:
            note = {
                "note": f"node {number} runs already, as process {child.pid}",
                "pid": str(child.pid),
            }
        else:
            await self._start(child)
        if not self._can_decide:
            return note | {
                "waits": f"node {number} runs, and serves once a majority of the voters "
                f"(1 to {self.layout.voters}) does: start another"
            }
        await self._any_of(child.serves, child.ended, timeout_s=START_S)
        if child.serves.is_set():
            return note | {"ready": self.layout.address(child.number)}
        if child.runs:
            return {"refused": f"node {number} does not serve yet; its log is {child.log}"}
        return {"refused": f"node {number} {child.how_it_ended()}"}


def _bind(folder: DevFolder) -> socket.socket:
    door = socket.socket(socket.AF_UNIX)
    with inside(folder):
        Path(SOCKET).unlink(missing_ok=True)
        door.bind(SOCKET)
    return door
