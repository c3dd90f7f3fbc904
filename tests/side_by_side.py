"""All tests in nine processes at once, for most of them wait for programs of others.

    python tests/side_by_side.py [options of pytest]

Each line says whose it is; at the end there is how long each part took, on the clock and of the cores, and once more
what failed; the exit code is that of a part that failed, if one did. Ctrl-C ends all. What asks a real Kafka alone is
left to `make test-alone`, what takes very long to `make test-long`.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from fencepost.node.cli.children import die_with_parent

TESTS = Path(__file__).parent
# Of one process after the other two cores are idle half of the time. The last ones compute all the time: the
# cluster's with what the simulator once found, the simulator's own, and what no other part names. None is much longer
# than another, for a core has nothing to do while the last one ends. A file that is named is no part of its folder's.
PARTS = {
    "binlog": ("binlog", "kubernetes", "monitoring"),
    "spark": ("spark",),
    "chaos": ("chaos",),
    "docker": ("docker", "chaos/test_faults_containers.py", "chaos/test_faults_upgrade_nodes.py"),
    "clients": ("clients", "examples"),
    "node": ("node",),
    "cluster": ("cluster", "regressions"),
    "sim": ("sim",),
}
# Linux shares the cores out by session, so each part is one of its own, as the nodes that it starts are: all in one
# would have a tenth of what each node has. And Spark gives up a Python worker that needs over ten seconds to start,
# which no setting of it changes: its part goes first where that is allowed (root's). Chaos waits for longest, the
# simulator computes for longest, then the cluster's: with a share like all others' they would be alone in the end.
NICE = {"spark": -10, "chaos": -5, "sim": -4, "cluster": -3}
# Programs are started hundreds of times, and each would compile all that it imports: half a second of a core.
COMPILED_ONCE = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
OURS = ("-m", "not of_kafka and not long", "--durations=20", "--durations-min=5")


class Part:
    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.failures: list[str] = []
        self.took = ""
        self._began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *arguments]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=COMPILED_ONCE,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - only prctl runs in there
            start_new_session=True,
        )
        if nice := NICE.get(name):
            with suppress(OSError):
                autogroup = Path(f"/proc/{self._process.pid}/autogroup")
                autogroup.write_text(str(nice), encoding="ascii")
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"{self.name} | {line}", end="", flush=True)
            if line.startswith(("FAILED ", "ERROR ")):  # as pytest's summary names them
                self.failures.append(line)
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        # Of what it started, what it has waited for: no containers.
        cores = used.ru_utime + used.ru_stime
        self.took = f"{time.monotonic() - self._began:.0f} s, {cores:.0f} s of the cores"

    def ended(self) -> int:
        self._reader.join()
        return self._process.returncode

    def interrupt(self) -> None:
        """As Ctrl-C at its own terminal: it says what it has seen."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, signal.SIGINT)


def chosen(folders: Mapping[str, Sequence[Path]], part: str) -> list[str]:
    """Its own, without what another part names in one of them."""
    own = folders[part]
    others = chain.from_iterable(folders[other] for other in folders if other != part)
    inside = [each for each in others if not {*each.parents}.isdisjoint(own)]
    return [*(f"--ignore={each}" for each in inside), *map(str, own)]


def main(options: Sequence[str]) -> int:
    options = [*OURS, *options]
    folders = {part: [TESTS / each for each in named] for part, named in PARTS.items()}
    folders["rest"] = [TESTS]
    parts = [Part(name, [*options, *chosen(folders, name)]) for name in folders]

    def interrupt(*_: object) -> None:
        for part in parts:
            part.interrupt()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupt)
    codes = [part.ended() for part in parts]
    for part in parts:
        print(f"{part.name} | {part.took}", flush=True)
    for part in parts:
        for line in part.failures:
            print(f"{part.name} | {line}", end="", flush=True)
    return next((abs(code) for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
