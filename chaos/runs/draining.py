"""The time after the load in which what it has left is worked off: somebody looks, in a process of its own, until nothing is left."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from ..faults.system import System
from ..harness.processes import Process

MODULE: Final = "fencepost.chaos.workloads.hosted_drain"
DRAIN_S: Final = (
    60.0  # a group whose member has just died waits for its session, and a transaction for its time
)
SLACK_S: Final = 15.0
SAID_CHARACTERS: Final = 300


class Draining:
    """`goes_on` until it is over; `left` is what was not worked off then, empty when all was."""

    def __init__(self, folder: Path, wanted: Mapping[str, Any], system: System) -> None:
        file = folder / "drain.json"
        file.write_text(json.dumps(wanted))
        command = [sys.executable, "-m", MODULE, "--bootstrap", system.bootstrap]
        command += ["--wanted", str(file), "--seconds", str(DRAIN_S)]
        admins = ",".join(f"{host}:{port}" for host, port in system.admins.values())
        command += ["--admin", admins] if admins else []
        self._process = Process(command, log=folder / "clients" / "drain.log")
        self._late = 0.0

    def __enter__(self) -> Self:
        self._process.start()
        self._late = time.monotonic() + DRAIN_S + SLACK_S
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    @property
    def goes_on(self) -> bool:
        return self._process.alive and time.monotonic() < self._late

    @property
    def left(self) -> str:
        code = self._process.exit_code
        if code == 0:
            return ""
        said = self._process.said()[-SAID_CHARACTERS:].strip()
        return said or f"who looked ended with {code}, and said nothing"
