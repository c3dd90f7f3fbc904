"""What this machine can be asked for: targets, the faults of each; and what it lacks, each with its reason.

INVARIANT  a target or a kind of fault that nobody left out, and that can't be had here, is a sentence of its own, which counts
           as one `unknown`.
PREVENTS   a round that is green because Kafka, the containers or the power cuts were never part of it.
PROVED BY  tests/chaos/test_report_reach.py::test_without_a_compiler_every_fault_that_needs_one_is_named
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..faults.kinds import FAULTS, possible
from ..faults.loopback import LIES, Loopback
from ..faults.system import System
from ..faults.systems import system_of
from ..faults.world import compiler, library
from ..harness.processes import DidNotStart

CONTAINERS, KAFKA = "containers", "kafka"
ENGINE_S: Final = 20.0


@dataclass(slots=True)
class Reach:
    known: dict[str, list[str]] = field(default_factory=dict)  # target -> faults it can have here
    lacking: list[str] = field(default_factory=list)


def reach(targets: Sequence[str], only: Sequence[str] = ()) -> Reach:
    """Of these targets; of these faults, if any is named."""
    found = Reach()
    wanted: dict[str, tuple[str, list[str]]] = {}  # fault -> what it takes, and where
    for target in targets:
        if why := missing(target):
            found.lacking.append(f"nothing was run on {target}: {why}")
            continue
        names, lacks = faults_of(target)
        kept = [name for name in names if not only or name in only]
        if kept:
            found.known[target] = kept
        for name, takes in lacks.items():
            if not only or name in only:
                wanted.setdefault(name, (takes, []))[1].append(target)
    for name, (takes, where) in wanted.items():
        found.lacking.append(f"{name} struck nobody on {' and '.join(where)}: it takes {takes}")
    return found


def faults_of(target: str) -> tuple[list[str], dict[str, str]]:
    """What this target can have here; what it could have on another machine, with what that takes."""
    with tempfile.TemporaryDirectory() as folder:
        system = system_of(target, Path(folder) / "nodes")
        wants = dict(system.wants)
        try:
            if isinstance(system, Loopback) and compiler() is not None:
                try:
                    library(Path(folder))
                except DidNotStart as why:
                    system.can -= LIES
                    wants |= dict.fromkeys(LIES, f"a C compiler that works ({_first_line(why)})")
            return possible(system), _lacks(system, wants)
        finally:
            system.close()


def _lacks(system: System, wants: dict[str, str]) -> dict[str, str]:
    return {
        name: wants[kind.needs]
        for name, kind in FAULTS.items()
        if kind.needs in wants and kind.needs not in system.can
    }


def _first_line(why: Exception) -> str:
    return (str(why).splitlines() or [""])[0]


def missing(target: str) -> str:
    """Why this machine has no such target; empty when it has."""
    if target == KAFKA:
        from ..faults.kafka_processes import libraries

        if shutil.which("java") is None:
            return "there is no java"
        try:
            libraries()
        except DidNotStart as why:
            return str(why)
    if target == CONTAINERS:
        try:
            done = subprocess.run(
                ["docker", "info"], capture_output=True, text=True, timeout=ENGINE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"no Docker engine answers: {error}"
        return f"no Docker engine answers: {done.stderr.strip()[-200:]}" if done.returncode else ""
    return ""
