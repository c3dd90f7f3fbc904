"""What is killed, and when: all of it from a seed. A kill is SIGKILL, to one process by its number."""

import contextlib
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

KINDS: Final = ("broker", "executor", "driver", "source")
FIRST_S: Final = 3.0
GAP_S: Final = (2.5, 7.0)
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class Fault(NamedTuple):
    at_s: float  # since customers began to order
    kind: str
    which: int  # of several: modulo how many there are
    back_after_s: float  # until a broker is started again


def schedule(seed: int, seconds: float, kinds: Sequence[str] = KINDS) -> list[Fault]:
    """Each kind comes before any comes twice."""
    die = random.Random(f"faults {seed}")
    found: list[Fault] = []
    at_s, left = FIRST_S, []
    while at_s < seconds:
        if not left:
            left = die.sample(kinds, len(kinds))
        found.append(Fault(at_s, left.pop(), die.randrange(1_000), die.uniform(0.3, 2.5)))
        at_s += die.uniform(*GAP_S)
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def in_session(leader: int) -> Iterator[int]:
    """All processes that a process started in its own session has beneath it, itself too."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (each / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    yield int(each.name)


def executors(leader: int) -> list[int]:
    """The JVMs of a job's executors, in the order of their numbers."""
    found = []
    for pid in in_session(leader):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if EXECUTOR.encode() in command and b"java" in command.partition(b"\0")[0]:
                found.append(pid)
    return sorted(found)
