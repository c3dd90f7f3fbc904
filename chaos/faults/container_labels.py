"""Whose a thing of the engine is: a run's process as nobody else can be, and whether that one is dead.

An engine may serve harnesses that do not see each other: in containers of their own, on other machines, before and after
a boot. There a process number says nothing, and here it comes again for somebody else.

INVARIANT  two labs never have one label, wherever they are; dead is only whose process this one would see if it lived.
PREVENTS   a harness that removes the living nodes of another one in another container; leftovers that stay because their
           process number is in use again.
PROVED BY  tests/chaos/test_faults_containers.py::test_only_what_dead_runs_of_this_namespace_left_is_removed
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
GONE: Final = frozenset({"Z", "X"})  # states of a process that nobody has waited for yet
NAMESPACE_DIGITS: Final = 12
_number = count(1)


def namespace() -> str:
    """Where process numbers and their starts mean what they mean here: this boot, and this process's view of it."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    views = [PROC / "self/ns" / name for name in ("pid", "time")]
    view = [str(each.readlink()) for each in views if each.is_symlink()]
    return hashlib.sha256(f"{boot} {view}".encode()).hexdigest()[:NAMESPACE_DIGITS]


def new_lab() -> str:
    """NAMESPACE-PROCESS-START-NUMBER, of one lab of this process: a part of names, and the value of its label."""
    process = os.getpid()
    return f"{namespace()}-{process}-{_started(process)}-{next(_number)}"


def dead(labs: Iterable[str]) -> Iterator[str]:
    """Those whose process has certainly ended. Of another namespace's, or of one that is no lab's, nobody here knows."""
    here = namespace()
    for lab in sorted(set(labs)):
        where, *rest = lab.split("-")
        if where == here and len(rest) == 3 and rest[0].isdecimal():
            process, started, _ = rest
            if _started(int(process)) != started:
                yield lab


def _started(process: int) -> str:
    """In ticks since the boot; empty when there is none that lives."""
    try:
        stat = (PROC / str(process) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(")")[
        2
    ].split()  # from the third on, its state; a name may hold anything
    return "" if fields[0] in GONE else fields[19]
