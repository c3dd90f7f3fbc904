"""The rules of the queue workload over a history of any length, in memory that hardly grows with it.

    python -m fencepost.chaos.checkers.queue_measure --operations 100000000      what it takes, measured

Three passes: by line (`queue_lines.py`), by value (`queue_values.py`), by place (`queue_places.py`, `queue_cycles.py`), with
files in a folder beside the history that is removed afterwards, or by the next check when one is killed. The rules are those
of the plain checkers, and tests compare the two; what is allowed anyway (G0, int-send-skip) is not looked for, and a transaction of unknown fate that may fill a part
of a gap in what a group consumed is taken to fill it. What overtook another is told as `key-order`, and as `nonmonotonic-send`
too where its sender had been told of both offsets.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from .history import Anomaly
from .queue_asked import Meanwhile
from .queue_cycles import Knots
from .queue_lines import Found, Lines
from .queue_places import Places
from .queue_values import Values
from .txn_history import Txn

CHECKING: Final = ".checking-"  # behind the name of the history: what is written while it is read


def stream(file: Path, see: Callable[[Txn], None]) -> tuple[list[Anomaly], str]:
    """Anomalies, and where the history was cut short. `see` is called with each operation, in their order."""
    found = Found()
    with beside(file) as folder:
        lines = Lines(folder, file.stat().st_size, found)
        with closing(lines.words):
            lines.read(file, see)
            values = Values(lines, folder, found)
            values.run()
            Meanwhile(lines, found).run()
            Places(lines, values, folder, found).run()
            Knots(lines, found).run(file)
    return found.all(), lines.cut


@contextmanager
def beside(file: Path) -> Iterator[Path]:
    """A folder that is removed afterwards; and so is one that a check of the same history has left which was killed."""
    prefix = f"{file.name}{CHECKING}"
    with ExitStack() as stack:
        with _held(file.parent):  # one at a time: who has just made one does not hold it yet
            for left in [each for each in file.parent.iterdir() if each.name.startswith(prefix)]:
                with suppress(OSError), _held(left, waits=False):
                    shutil.rmtree(left, ignore_errors=True)
            made = tempfile.TemporaryDirectory(prefix=prefix, dir=file.parent)
            folder = Path(stack.enter_context(made))
            stack.enter_context(_held(folder))
        yield folder


@contextmanager
def _held(folder: Path, *, waits: bool = True) -> Iterator[None]:
    """Until then, or until this process ends, however it does. Who does not wait gets an OSError where another holds it.

    Where a file system knows no such thing (NFS, of folders), nothing is held, and so nothing removed.
    """
    there = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if waits:
            with suppress(OSError):
                fcntl.flock(there, fcntl.LOCK_EX)
        else:
            fcntl.flock(there, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(there)
