"""All tests in two processes at once: those that mostly wait for programs of others, and the rest.

    python tests/side_by_side.py [options of pytest]

Each line says whose it is, and what failed in either half is said once more at the end; the exit code is that of a
half that failed, if one did. Ctrl-C ends both.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
# Brokers and clients of others, containers, Spark, databases: one core is idle while they run.
# Some of those are among the rest (examples, kubernetes), so that both halves take about as long.
WAITING = ("binlog", "clients", "docker", "monitoring", "spark")


class Half:
    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.failures: list[str] = []
        command = [sys.executable, "-m", "pytest", *arguments]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"{self.name} | {line}", end="", flush=True)
            if line.startswith(("FAILED ", "ERROR ")):  # as pytest's summary names them
                self.failures.append(line)

    def ended(self) -> int:
        while True:
            try:
                code = self._process.wait()
                self._reader.join()
                return code
            except KeyboardInterrupt:
                continue  # it has had the signal, too, and says what it has seen


def main(options: Sequence[str]) -> int:
    folders = [str(TESTS / each) for each in WAITING]
    halves = [
        Half("waits", [*options, *folders]),
        Half("works", [*options, *(f"--ignore={each}" for each in folders), str(TESTS)]),
    ]
    codes = [half.ended() for half in halves]
    for half in halves:
        for line in half.failures:
            print(f"{half.name} | {line}", end="", flush=True)
    return next((abs(code) for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
