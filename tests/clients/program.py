"""A client program in another language: started once a session, asked for one scenario after the other.

It reads lines `SCENARIO PREFIX` and answers each with `ok` or `failed WHY` (newlines as \\n) on stdout;
its client's log goes to stderr. A scenario is a function in its sources that checks what it sees, and
begins the names of its topics and groups with PREFIX.
"""

import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from re import Pattern

from support.kafka_peer import CACHE, alone
from support.needs import give_up

WAIT_S = 50.0
LOG_TAIL = 4_000
ROOT = Path(__file__).parent


def scenarios_in(files: Sequence[Path], pattern: Pattern[str]) -> list[str]:
    """The names of all scenarios, so that a new one is a test without a second list."""
    names = [
        f"{file.stem}.{found.group(1)}" for file in files for found in pattern.finditer(file.read_text())
    ]
    assert names, f"no scenario in {files}"
    return names


class Program:
    """The running program. It may take one question at a time."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> None:
        self.log = tempfile.NamedTemporaryFile("w+", prefix="client-program-")  # noqa: SIM115
        self._answers: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            bufsize=1,
            env=environment,
        )
        # A scenario that hangs must end its test, and a pipe has no read with a deadline.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.rstrip("\n"))
        self._answers.put("failed the program ended")

    def said(self) -> str:
        return Path(self.log.name).read_text()

    def run(self, scenario: str, prefix: str) -> str:
        """Run one scenario; fails with what it found and what its client logged. Returns that log."""
        assert self._process.stdin is not None
        assert self._process.poll() is None, "the program ended with an earlier scenario"
        before = len(self.said())
        print(scenario, prefix, file=self._process.stdin)
        try:
            answer = self._answers.get(timeout=WAIT_S)
        except queue.Empty:
            self._process.kill()
            answer = f"failed no answer within {WAIT_S:g} s"
        log = self.said()[before:]
        why = answer.removeprefix("failed ").replace("\\n", "\n")
        assert answer == "ok", f"{scenario}: {why}\n--- its log:\n{log[-LOG_TAIL:]}"
        return log

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()  # tells it to end
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()
            self.log.close()


@contextmanager
def program(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    running = Program(command, environment=environment)
    try:
        yield running
    finally:
        running.close()


def build(command: Sequence[str], *, name: str, folder: Path) -> Path:
    """Run a build in `folder` that fills `.cache/NAME`; a failure is a missing tool, with its reason."""
    into = CACHE / name
    with alone(name):
        into.mkdir(exist_ok=True)
        done = subprocess.run(
            [part.replace("{into}", str(into)) for part in command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode != 0:
        give_up(f"{' '.join(command[:2])} failed in {folder.name}: {done.stderr[-2000:]}")
    return into
